"""What a model directory may load. Every crafted directory has a canary: a file that any code of it would write."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize

from tests.registries import restored
from xalign_models import assets, load, plugins
from xalign_models.assets import Inspected
from xalign_models.backbones import policy
from xalign_models.backbones.checkpoint import open_directory
from xalign_models.backbones.loading import open_backbone
from xalign_models.errors import ModelError, XAlignError
from xalign_models.specs import BackboneSpec, Pooling

MARK = "ran.txt"
CANARY = """
import pathlib
import torch
pathlib.Path({mark!r}).write_text("code ran")
class Evil(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
    @classmethod
    def load(cls, *args, **kwargs):
        return cls()
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        return cls()
"""


class Bomb:
    """Writes the canary when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.path, "code ran"))


def edit(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**content, **fields}))


def module(folder: Path, kind: str, path: str = "9_Evil", **config: Any) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": len(modules), "name": str(len(modules)), "path": path, "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))
    if config:
        edit(folder / path / "config.json", **config)


def escaped(path: Path, key: str, value: Any) -> None:
    """Adds a field whose name is written with an escape, so that no search of the text finds it."""
    text = path.read_text().rstrip().removesuffix("}").rstrip()
    name = key.replace("_", "\\u005f")
    path.write_text(f'{text}, "{name}": {json.dumps(value)}}}')


def plain(folder: Path) -> None:
    """No sentence-transformers directory any more, but a checkpoint."""
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (folder / name).unlink(missing_ok=True)


def adapter(folder: Path, base: str, **fields: Any) -> None:
    plain(folder)
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    edit(folder / "adapter_config.json", peft_type="LORA", base_model_name_or_path=base, r=1, **fields)


def evil_base(folder: Path) -> None:
    base = Path(shutil.copytree(folder, folder.with_name("base")))
    plain(base)
    edit(base / "config.json", auto_map={"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"})
    (base / "evil.py").write_text((folder.parent / "evil.py").read_text())
    adapter(folder, str(base))


def local_type(folder: Path) -> None:
    """A type that is a module of the current directory."""
    module(folder, "evil.Evil")


def with_code(folder: Path, **maps: Any) -> None:
    (folder / "evil.py").write_text((folder.parent / "evil.py").read_text())
    plain(folder)
    edit(folder / "config.json", **maps)


def link_out(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    shutil.move(folder / name, outside)
    (folder / name).symlink_to(outside)


def bomb(path: Path, **kept: Any) -> None:
    path.write_bytes(pickle.dumps(Bomb(path.parents[1] / MARK)))


def pickled_dense(folder: Path) -> None:
    kind = "sentence_transformers.models.Dense"
    module(folder, kind, in_features=16, out_features=16, bias=True, activation_function="torch.nn.Tanh")
    bomb(folder / "9_Evil" / "pytorch_model.bin")


def pickled_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    bomb(folder / "pytorch_model.bin")


def decoy(folder: Path) -> None:
    """Safetensors beside a pickle that are not read in its place."""
    pickled_dense(folder)
    shutil.copy(folder / "model.safetensors", folder / "9_Evil" / "model_of_another.safetensors")


def pipe(folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").unlink()
    os.mkfifo(folder / "1_Pooling" / "config.json")


def without_text(folder: Path) -> None:
    """transformers makes an empty tokenizer where the files of one are missing."""
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink(missing_ok=True)


def sized(folder: Path, **fields: Any) -> None:
    """A configuration of a model that memory cannot hold, beside weights of some kilobytes."""
    edit(folder / "config.json", **fields)


def shard_outside(folder: Path) -> None:
    plain(folder)
    shutil.move(folder / "model.safetensors", folder.parent / "model.safetensors")
    edit(folder / "model.safetensors.index.json", metadata={}, weight_map={"a": "../model.safetensors"})


AUTO = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
OTHER = {"AutoModel": "someone/else--evil.Evil", "AutoConfig": "someone/else--evil.Evil"}
DENSE = "sentence_transformers.models.Dense"
CRAFTED: dict[str, Callable[[Path], None]] = {
    "auto_map": lambda folder: with_code(folder, auto_map=AUTO, model_type="evil"),
    "auto_map of a known model": lambda folder: with_code(folder, auto_map=AUTO),
    "auto_map in a pipeline": lambda folder: edit(folder / "config.json", auto_map=AUTO),
    "auto_map escaped": lambda folder: escaped(folder / "config.json", "auto_map", AUTO),
    "auto_map of another repository": lambda folder: edit(folder / "config.json", auto_map=OTHER),
    "auto_map further down": lambda folder: edit(folder / "config.json", text_config={"auto_map": AUTO}),
    "tokenizer's auto_map": lambda folder: edit(folder / "tokenizer_config.json", auto_map=AUTO),
    "tokenizer's auto_map escaped": lambda folder: escaped(folder / "tokenizer_config.json", "auto_map", AUTO),
    "processor's auto_map": lambda folder: edit(
        folder / "processor_config.json", auto_map={"AutoProcessor": "evil.Evil"}
    ),
    "type in the current directory": local_type,
    "type of another package": lambda folder: module(folder, "os.path.join"),
    "type that begins like ours": lambda folder: module(folder, "xalign_models_evil.Module"),
    "type within ours": lambda folder: module(folder, "xalign_models.backbones.use.Path"),
    "type within sentence-transformers": lambda folder: module(folder, "sentence_transformers.util.import_from_string"),
    "Router": lambda folder: module(
        folder, "sentence_transformers.models.Router", types={"a": "evil.Evil"}, structure={"query": ["a"]}
    ),
    "Router by its full name": lambda folder: module(folder, "sentence_transformers.base.modules.router.Router"),
    "Asym": lambda folder: module(folder, "sentence_transformers.models.Asym", types={"a": "evil.Evil"}),
    "WordEmbeddings": lambda folder: module(
        folder, "sentence_transformers.models.WordEmbeddings", tokenizer_class="evil.Evil"
    ),
    "activation_function": lambda folder: module(
        folder, DENSE, in_features=16, out_features=16, bias=True, activation_function="evil.Evil"
    ),
    "activation_function of torch": lambda folder: module(
        folder, DENSE, in_features=16, out_features=16, bias=True, activation_function="torch.hub.load"
    ),
    "module outside": lambda folder: module(folder, DENSE, path="../base"),
    "settings that trust": lambda folder: edit(
        folder / "sentence_bert_config.json", model_args={"trust_remote_code": True}
    ),
    "settings that load kernels": lambda folder: edit(
        folder / "sentence_bert_config.json", model_args={"attn_implementation": "someone/evil"}
    ),
    "settings that call a method": lambda folder: edit(
        folder / "sentence_bert_config.json",
        modality_config={"text": {"method": "push_to_hub", "method_output_name": "x"}},
    ),
    "tokenizer from elsewhere": lambda folder: edit(
        folder / "sentence_bert_config.json", tokenizer_name_or_path="someone/evil"
    ),
    "kernels as attention": lambda folder: edit(folder / "config.json", _attn_implementation="someone/evil"),
    "adapter's base": evil_base,
    "adapter's mapping": lambda folder: adapter(
        folder, "all-minilm-l6-v2", auto_mapping={"parent_library": "evil", "base_model_class": "Evil"}
    ),
    "adapter's megatron": lambda folder: adapter(
        folder, "all-minilm-l6-v2", megatron_config={"a": 1}, megatron_core="evil"
    ),
    "adapter of itself": lambda folder: adapter(folder, str(folder)),
    "Python file": lambda folder: (folder / "1_Pooling" / "config.py").write_text("import evil"),
    "library": lambda folder: (folder / "fast.so").write_bytes(b"\x7fELF"),
    "pickled weights": pickled_weights,
    "pickled module": pickled_dense,
    "pickled module beside a decoy": decoy,
    "pickle": lambda folder: bomb(folder / "vocabulary.pkl"),
    "link to weights": lambda folder: link_out(folder, "model.safetensors"),
    "link to settings": lambda folder: link_out(folder, "config.json"),
    "link to a folder": lambda folder: link_out(folder, "1_Pooling"),
    "link to itself": lambda folder: (folder / "loop").symlink_to("loop"),
    "pipe": pipe,
    "shard outside": shard_outside,
    "quantised by kernels": lambda folder: edit(folder / "config.json", quantization_config={"quant_method": "fp8"}),
    "quantised by nobody": lambda folder: edit(folder / "config.json", quantization_config={"quant_method": "evil"}),
    "too many layers": lambda folder: edit(folder / "config.json", num_hidden_layers=10**7),
    **{
        f"{10**9:,} as {field}": partial(sized, **{field: 10**9})
        for field in (
            "hidden_size",
            "intermediate_size",
            "max_position_embeddings",
            "num_attention_heads",
            "num_labels",
            "type_vocab_size",
            "vocab_size",
        )
    },
    "a negative size": partial(sized, vocab_size=-5),
    "sizes of another model": partial(sized, model_type="albert", embedding_size=10**9),
    "many experts": partial(sized, model_type="mixtral", num_local_experts=10**9, num_key_value_heads=2),
    "many groups": partial(sized, model_type="albert", embedding_size=16, inner_group_num=10**9),
    "many kinds of attention": partial(sized, model_type="gpt_neo", attention_types=[[["global"], 10**9]]),
    "no tokenizer": without_text,
    "a model as tokenizer": lambda folder: edit(folder / "tokenizer_config.json", tokenizer_class="AutoModel"),
    "negative length": lambda folder: edit(folder / "sentence_bert_config.json", max_seq_length=-1),
    "length of one token": lambda folder: edit(folder / "sentence_bert_config.json", max_seq_length=1),
    "length of text": lambda folder: edit(folder / "sentence_bert_config.json", max_seq_length="long"),
    "huge length": lambda folder: edit(folder / "sentence_bert_config.json", max_seq_length=10**400),
    "another model": lambda folder: edit(folder / "config_sentence_transformers.json", model_type="SparseEncoder"),
    "module twice": lambda folder: (folder / "modules.json").write_text(
        json.dumps(2 * json.loads((folder / "modules.json").read_text())[:1])
    ),
    "nested deeply": lambda folder: (folder / "config.json").write_text("[" * 100_000),
    "lone surrogate": lambda folder: edit(folder / "tokenizer_config.json", pad_token="\ud800"),
    "no JSON": lambda folder: (folder / "modules.json").write_bytes(b"\xff\xfe["),
}


@pytest.fixture
def folder(tiny_model: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a good model, in a current directory that has the attacker's module; sys.path finds it there."""
    (workdir / "evil.py").write_text(CANARY.format(mark=str(workdir / MARK)))
    monkeypatch.syspath_prepend(str(workdir))
    return Path(shutil.copytree(tiny_model, workdir / "model"))


@pytest.fixture
def bounded() -> Iterator[None]:
    """Two gigabytes more may be taken: what needs more fails at once, not when the memory is full."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("craft", CRAFTED.values(), ids=CRAFTED.keys())
def test_a_crafted_directory_runs_nothing_and_is_refused_in_one_line(folder, workdir, craft):
    craft(folder)
    spec = BackboneSpec("crafted", str(folder))
    refusals = []
    for function in (lambda: open_backbone(spec).modules("cpu"), lambda: open_directory(Inspected(folder), "cpu")):
        with pytest.raises(XAlignError) as caught:
            function()
        refusals.append(str(caught.value))
    assert not (workdir / MARK).exists()
    assert all("\n" not in refusal and len(refusal) < 1000 for refusal in refusals)
    assert not any("allocate" in refusal for refusal in refusals)
    if (folder / "modules.json").is_file():
        assert isinstance(caught.value, ModelError)


@pytest.mark.parametrize(
    ("crafted", "part", "trust_helps"),
    [
        ("WordEmbeddings", "the module sentence_transformers.models.WordEmbeddings", True),
        ("quantised by kernels", "weights quantised by 'fp8'", True),
        ("Hardswish", "the activation function torch.nn.Hardswish", False),
    ],
)
def test_parts_of_libraries_that_are_not_supported_are_no_code_of_the_model(folder, crafted, part, trust_helps):
    dense = {"in_features": 16, "out_features": 16, "bias": True, "activation_function": "torch.nn.Hardswish"}
    module(folder, DENSE, **dense) if crafted == "Hardswish" else CRAFTED[crafted](folder)
    with pytest.raises(ModelError, match=f" uses {part}, which xalign does not support. Choose another model") as said:
        policy.check(Inspected(folder))
    assert ("--trust-remote-code" in str(said.value)) == trust_helps
    with nullcontext() if trust_helps else pytest.raises(ModelError, match="Hardswish.*, which xalign does not"):
        policy.check(Inspected(folder), trust=True)


def test_the_good_model_that_the_crafted_ones_are_copies_of_is_loaded(folder, workdir):
    assert len(open_backbone(BackboneSpec("good", str(folder))).modules("cpu")) == 2
    assert not policy.has_own_modules(Inspected(folder))


def test_a_model_on_the_hub_is_checked_by_its_settings_before_its_weights_are_read(folder, workdir, monkeypatch):
    import huggingface_hub.constants

    commit = "0" * 40
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(workdir / "hub"))
    snapshot = workdir / "hub" / "models--someone--model" / "snapshots" / commit
    resolved = assets.ResolvedModel("someone/model", commit, f"someone/model@{commit}", "hub")
    snapshot.mkdir(parents=True)
    shutil.copytree(folder, snapshot, dirs_exist_ok=True)
    policy.check(resolved.files)
    resolved = dataclasses.replace(resolved)  # files are read once
    escaped(snapshot / "config.json", "auto_map", AUTO)
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"someone/model has its own code.* auto_map.*--trust-remote-code"):
        policy.check(resolved.files)
    assert not (workdir / MARK).exists()


def test_links_of_the_hubs_own_cache_are_followed(folder, workdir):
    snapshot = workdir / "models--someone--model" / "snapshots" / ("0" * 40)
    blobs = snapshot.parents[1] / "blobs"
    blobs.mkdir(parents=True)
    shutil.copytree(folder, snapshot)
    shutil.move(snapshot / "model.safetensors", blobs / "1")
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs/1"))
    assert len(open_backbone(BackboneSpec("cached", str(snapshot))).modules("cpu")) == 2


CUSTOM = """
import torch
from sentence_transformers.base.modules import Module

class Doubled(Module):
    config_keys = []
    def forward(self, features):
        features["sentence_embedding"] = 2 * features["sentence_embedding"]
        return features
    def save(self, path, *args, **kwargs):
        self.save_config(path)
    @classmethod
    def load(cls, *args, **kwargs):
        return cls()
"""


def test_a_custom_model_runs_where_the_user_trusts_it_and_its_name_and_spec_say_so(folder, workdir):
    from xalign_models.models.building import load
    from xalign_models.models.names import find_spec

    (folder / "doubling.py").write_text(CUSTOM)
    module(folder, "doubling.Doubled", path="")
    with pytest.raises(ModelError, match="has its own code"):
        load(str(folder), device="cpu")
    spec = find_spec(str(folder), trust_remote_code=str(folder))
    modules = open_backbone(spec.backbone).modules("cpu")
    assert type(modules[-1]).__name__ == "Doubled"
    assert "trust" in spec.name
    assert spec.to_dict()["backbone"]["trust_remote_code"] is True
    plainly = BackboneSpec(spec.backbone.name, spec.backbone.model)
    assert spec.backbone.encoding_fields() != plainly.encoding_fields()


def test_a_normalisation_before_other_modules_is_kept(folder):
    from xalign_models.backbones.raw import RawEncoder

    first, pooling, _ = SentenceTransformer(str(folder), device="cpu")
    dense = Dense(16, 16, activation_function=torch.nn.Tanh())
    dense.linear.weight.data *= 5
    whole = SentenceTransformer(modules=[first, pooling, Normalize(), dense, Normalize(), Normalize()], device="cpu")
    whole.save_pretrained(str(folder.with_name("whole")), create_model_card=False)
    modules = open_backbone(BackboneSpec("whole", str(folder.with_name("whole")))).modules("cpu")
    vectors = RawEncoder("n", lambda: modules, "cpu").encode(["house", "green river", ""])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, whole.encode(["house", "green river", ""]), atol=1e-6)
    assert len(modules) == 4


def test_a_module_of_a_plug_in_is_admitted_once_it_is_registered(folder):
    kind = f"{plugins.PACKAGE}.head.Head"
    names = json.loads((folder / "modules.json").read_text())
    names[-1]["type"] = kind
    (folder / "modules.json").write_text(json.dumps(names))
    with pytest.raises(ModelError, match=r"needs a plug-in that is not loaded: name its file, head\.py, with --plugin"):
        policy.check(Inspected(folder))
    with restored(plugins.MODULES):
        plugins.MODULES.register(kind, torch.nn.Identity)
        policy.check(Inspected(folder))
        assert policy.module_classes(assets.Inspected(folder))[kind] is torch.nn.Identity


def test_layers_and_poolings_of_a_checkpoint_are_still_chosen(folder):
    first = open_backbone(BackboneSpec("cut", str(folder), layer=0, pooling=Pooling.MEAN)).modules("cpu")[0]
    assert first.model.config.num_hidden_layers == 1


@pytest.mark.parametrize(
    "kind",
    ["models.CNN", "models.LSTM.LSTM", "sentence_transformer.modules.cnn.CNN", "sentence_transformer.modules.LSTM"],
)
def test_a_module_that_reads_across_tokens_is_refused_even_if_trusted(folder, kind):
    module(folder, f"sentence_transformers.{kind}")
    for trust in (False, True):
        with pytest.raises(ModelError, match=r"has a CNN or an LSTM.*Choose another model\.$"):
            policy.check(Inspected(folder), trust=trust)


@pytest.mark.parametrize("architectures", [5, ["BertModel", 5]])
def test_whatever_a_configuration_makes_a_loader_raise_is_one_line(folder, architectures):
    plain(folder)
    edit(folder / "config.json", architectures=architectures)
    with pytest.raises(XAlignError):
        open_backbone(BackboneSpec("odd", str(folder))).modules("cpu")


def test_whole_numbers_in_a_dense_layer_are_refused_by_name(folder):
    from safetensors.torch import save_file

    module(folder, DENSE, in_features=16, out_features=16, bias=False, activation_function="torch.nn.Identity")
    for kind in (torch.float32, torch.int8):
        save_file({"linear.weight": torch.eye(16).to(kind)}, folder / "9_Evil" / "model.safetensors")
        if kind == torch.float32:
            open_backbone(BackboneSpec("good", str(folder))).modules("cpu")
    with pytest.raises(ModelError, match=r"linear\.weight is of type I8"):
        open_backbone(BackboneSpec("rounded", str(folder))).modules("cpu")


@pytest.mark.parametrize("opener", ["writer", "tokenizer", "encoder", "config", "pipeline"])
def test_every_way_to_open_a_base_is_checked(folder, workdir, opener):
    from xalign_models.backbones.checkpoint import open_config
    from xalign_models.generation.language_model import LanguageModel
    from xalign_models.training.lusifer.parts import base_of, load_encoder

    escaped(folder / "config.json", "auto_map", AUTO)
    resolved = assets.resolve(str(folder))
    ways: dict[str, Callable[[], Any]] = {
        "writer": lambda: LanguageModel(str(folder), device="cpu").model,
        "tokenizer": lambda: LanguageModel(str(folder), device="cpu").tokenizer,
        "encoder": lambda: load_encoder(base_of(str(folder), None, "float32")),
        "config": lambda: open_config(resolved),
        "pipeline": lambda: open_directory(Inspected(folder), "cpu"),
    }
    with pytest.raises(ModelError, match="has its own code"):
        ways[opener]()
    assert not (workdir / MARK).exists()


def test_the_adapters_that_xalign_trains_are_admitted_in_any_folder(folder):
    from xalign_models.backbones.adapters import _POOLER

    inner = folder / "0_Transformer" / "adapter_config.json"
    edit(inner, target_modules=["query"], exclude_modules=_POOLER)
    policy.check(Inspected(folder))
    for pattern in ("(a+)+", {"a": 1}):
        edit(inner, target_modules=[pattern])
        with pytest.raises(ModelError, match="has the pattern"):
            policy.check(Inspected(folder))


def test_dimensions_that_a_model_asks_for_are_said_and_checked(folder, caplog):
    settings = folder / "config_sentence_transformers.json"
    edit(settings, truncate_dim=8)
    open_backbone(BackboneSpec("short", str(folder), truncate_dim=8)).modules("cpu")
    assert not caplog.records
    open_backbone(BackboneSpec("whole", str(folder))).modules("cpu")
    assert "asks for 8 dimensions; xalign keeps all. Add --truncate-dim 8." in caplog.text
    caplog.clear()
    for value in (16, 999):  # the model has 16, so that nothing is lost
        edit(settings, truncate_dim=value)
        open_backbone(BackboneSpec("whole", str(folder))).modules("cpu")
    for value in ("x", -3, 0, True, 2.5, [8]):
        edit(settings, truncate_dim=value)
        with pytest.raises(ModelError, match="truncate_dim .* is not a number of at least 1"):
            open_backbone(BackboneSpec("damaged", str(folder))).modules("cpu")
    assert not caplog.records


def test_a_model_without_vectors_of_tokens_is_refused_until_it_is_saved_as_the_message_says(checkpoint, tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    image = transformers.CLIPImageProcessor(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(checkpoint)
    transformers.CLIPProcessor(image, tokenizer).save_pretrained(tmp_path / "clip")
    text = {**sizes, "vocab_size": len(tokenizer), "eos_token_id": 3}
    config = transformers.CLIPConfig(
        text_config=text, vision_config={**sizes, "image_size": 8, "patch_size": 4}, projection_dim=6
    )
    transformers.CLIPModel(config).save_pretrained(tmp_path / "clip")
    said = r"no vectors of tokens to pool.*SentenceTransformer\(MODEL\)\.save_pretrained\(DIRECTORY\)"
    with pytest.raises(ModelError, match=said):
        load(str(tmp_path / "clip"), device="cpu")
    saved = SentenceTransformer(str(tmp_path / "clip"), device="cpu")
    saved.save_pretrained(str(tmp_path / "saved"))
    found = load(str(tmp_path / "saved"), device="cpu").encode(["the cat"])
    np.testing.assert_allclose(found, saved.encode(["the cat"], normalize_embeddings=True), atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_act": "nope"}, r"KeyError: 'nope'\. Perhaps its config\.json.* get the files again\.$"),
        ({"hidden_size": 0}, r"Perhaps its config\.json.* get the files again\.$"),
        ({"architectures": [5]}, r"config\.json is damaged: architectures is not a list of names; get the file again"),
        ({"architectures": 5}, r"config\.json is damaged: architectures is not a list of names; get the file again"),
    ],
)
def test_a_damaged_setting_names_its_file_and_the_remedy(folder, fields, message):
    edit(folder / "config.json", **fields)
    with pytest.raises(XAlignError, match=message):
        open_backbone(BackboneSpec("damaged", str(folder))).modules("cpu")


def test_a_missing_folder_of_a_module_is_named(folder):
    shutil.rmtree(folder / "1_Pooling")
    for function in (lambda: open_backbone(BackboneSpec("part", str(folder))).modules("cpu"),
                     lambda: open_directory(Inspected(folder), "cpu")):  # fmt: skip
        with pytest.raises(ModelError, match=r"1_Pooling/config\.json is missing.*; get the files again\.$"):
            function()


@pytest.mark.parametrize("value", [["y.z"], {"x": ["y.z"]}], ids=["list", "object"])
@pytest.mark.parametrize(
    ("file", "field"),
    [
        ("config.json", "megatron_core"),
        ("config.json", "activation_function"),
        ("config.json", "quantization_config"),
        ("config_sentence_transformers.json", "prompts"),
    ],
)
def test_a_list_or_an_object_where_a_name_belongs_is_refused(folder, file, field, value):
    edit(folder / file, **{field: {"quant_method": value} if field == "quantization_config" else value})
    with pytest.raises(ModelError, match=r"names|quantised|prompts"):
        policy.check(Inspected(folder))

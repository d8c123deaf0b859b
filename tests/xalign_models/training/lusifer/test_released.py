"""LUSIFER in the files of its authors' release: against their recipe in plain torch and peft, and damaged files."""

from __future__ import annotations

import json
import resource
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import MistralConfig, MistralForCausalLM, XLMRobertaConfig, XLMRobertaModel

import xalign_models
from xalign_models.backbones import loading
from xalign_models.backbones.sources import find_source
from xalign_models.errors import ModelError, XAlignError
from xalign_models.files import TensorHeader
from xalign_models.models.building import load_encoder
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.training.lusifer import released
from xalign_models.training.lusifer.config import RELEASED

WORDS = [f"w{i}" for i in range(60)]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
SETTINGS = {  # huggingface.co/Hieuman/LUSIFER, config.json, but for the names of the base checkpoints
    "attn_implementation": "flash_attention_2",
    "connection_type": "ff",
    "dropout": 0.1,
    "encoder_backbone_type": "mistral",
    "encoder_lora_name": "encoder_lora",
    "encoder_lora_target_modules": "all",
    "is_freeze_encoder": True,
    "is_freeze_universal_learner": False,
    "loar_r": 16,
    "lora_alpha": 32,
    "num_added_tokens": 0,
    "pooling_method": "mean",
    "universal_learner_backbone_type": "xlm-r",
    "universal_learner_lora_name": "universal_learner_lora",
    "universal_learner_lora_target_modules": "all",
}
TINY_XLM_R = XLMRobertaConfig(
    vocab_size=len(SPECIAL) + len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1, bos_token_id=0,
    eos_token_id=2, initializer_range=0.3,
)  # fmt: skip
TINY_MISTRAL = MistralConfig(
    vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    intermediate_size=32, max_position_embeddings=64, sliding_window=None, initializer_range=0.3,
)  # fmt: skip
XLM_R_LARGE = XLMRobertaConfig(
    vocab_size=250002, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
    max_position_embeddings=514, type_vocab_size=1,
)  # fmt: skip
MISTRAL_7B = MistralConfig(  # Instruct-v0.3, which the release names
    vocab_size=32768, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=14336, sliding_window=None,
)  # fmt: skip
TEXTS = ["w1", "w2 w3 w4 w5 w6 w7", "w8 w9 w10", "unknown w4"]
KEY = "encoder.base_model.model.model.layers.1.mlp.up_proj."


class Authors(nn.Module):
    """The authors' model by their description: two peft models, a connector and a projection, with their names."""

    def __init__(self, learner, llm, tokens=0):
        super().__init__()
        self.universal_learner = lora(XLMRobertaModel(learner), "universal_learner_lora", "query key value dense")
        names = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"
        self.encoder = lora(MistralForCausalLM(llm), "encoder_lora", names)
        width, target = learner.hidden_size, llm.hidden_size
        self.connection_module = nn.Module()
        self.connection_module.ff = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, target))
        if tokens:
            self.connection_module.added_tokens = nn.Parameter(torch.randn(tokens, target))
        self.output_projection = nn.Sequential(nn.Linear(target, target), nn.ReLU(), nn.Linear(target, target))

    @torch.no_grad()
    def encode(self, ids):
        """The vector of one text's token ids, with attention both ways; unpadded, so that there is no mask."""
        states = self.universal_learner(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[-1]
        soft = self.connection_module.ff(states)
        if hasattr(self.connection_module, "added_tokens"):
            soft = torch.cat([soft, self.connection_module.added_tokens[None]], dim=1)
        everything = torch.zeros(1, 1, soft.shape[1], soft.shape[1])
        out = self.encoder(inputs_embeds=soft, attention_mask=everything, output_hidden_states=True).hidden_states[-1]
        return torch.nn.functional.normalize(self.output_projection(out.mean(dim=1)), dim=1)[0].numpy()


def lora(model, adapter, names):
    from peft import LoraConfig, TaskType, get_peft_model

    settings = LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.1, target_modules=names.split(), task_type=TaskType.FEATURE_EXTRACTION
    )
    return get_peft_model(model, settings, adapter_name=adapter)


def write_bases(root):
    """Configuration and tokenizer of two base checkpoints: no weights, which the release has."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate([*SPECIAL, *WORDS])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **names).save_pretrained(root / "xlm-r")
    TINY_XLM_R.save_pretrained(root / "xlm-r")
    TINY_MISTRAL.save_pretrained(root / "mistral")


def write_release(root, tokens=0):
    """``root/release`` beside its base checkpoints; returns the authors' model."""
    write_bases(root)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        authors = Authors(TINY_XLM_R, TINY_MISTRAL, tokens).eval()
        for name, weight in authors.named_parameters():
            if "lora_B" in name or name.endswith("bias"):  # zero at first
                nn.init.normal_(weight, std=0.1)
    authors.encoder.base_model.model.set_attn_implementation("eager")
    (root / "release").mkdir()
    bases = {"universal_learner_name_or_path": str(root / "xlm-r"), "encoder_name_or_path": str(root / "mistral")}
    settings = {**SETTINGS, **bases, "num_added_tokens": tokens}
    (root / "release" / "config.json").write_text(json.dumps(settings))
    save_file(authors.state_dict(), root / "release" / "model.safetensors")
    return authors


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("released")
    return root / "release", write_release(root)


@pytest.fixture
def release(written, workdir):
    """A copy of the release that a test may damage."""
    return shutil.copytree(written[0], workdir / "release")


@pytest.fixture(autouse=True)
def _allowed(monkeypatch):
    """The user names every base, which a release alone may not."""
    monkeypatch.setattr("xalign_models.assets.resolution.named", str)


def change(release, drop=(), **settings):
    file = release / "config.json"
    known = {**json.loads(file.read_text()), **settings}
    file.write_text(json.dumps({key: value for key, value in known.items() if key not in drop}))


def retensor(release, change):
    tensors = load_file(release / "model.safetensors")
    change(tensors)
    save_file(tensors, release / "model.safetensors")


def refusal(release, kind=ModelError, **fields):
    with pytest.raises(kind) as caught:
        load_encoder(f"lusifer:{release}", **fields).raw.encode(["w1"])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def expected(authors, texts, prompt, longest=512):
    """Their ``<s>{instruction}.\\n{text}</s>``, tokenised word by word."""
    words = [*SPECIAL, *WORDS]
    rows = [[words.index(word if word in words else "<unk>") for word in (prompt + text).split()] for text in texts]
    return np.stack([authors.encode([0, *row[: longest - 2], 2]) for row in rows])


@pytest.mark.parametrize("tokens", [0, 1])
def test_vectors_are_those_of_the_authors_recipe(workdir, tokens):
    authors = write_release(workdir, tokens)
    model = xalign_models.load(f"lusifer:{workdir / 'release'}")
    assert model[0].inner[0].connector.tokens == tokens
    for prompt in ("", "w11 w12.\n", "w11 w12. Candidate:\n"):
        found = model.encode(TEXTS, prompt=prompt)
        np.testing.assert_allclose(found, expected(authors, TEXTS, prompt), atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS), expected(authors, TEXTS, RELEASED["default"]), atol=1e-5)


def test_vectors_in_mteb_are_the_same_and_do_not_depend_on_the_batch(release, written):
    encoder = load_encoder(f"lusifer:{release}")
    found = encoder.encode_texts(TEXTS, [None] * len(TEXTS), "")
    np.testing.assert_allclose(found, expected(written[1], TEXTS, ""), atol=1e-5)
    raw = encoder.raw.encode(TEXTS)
    np.testing.assert_allclose(np.concatenate([encoder.raw.encode([text]) for text in TEXTS]), raw, atol=1e-5)


def test_a_text_that_is_too_long_keeps_its_end_token(release, written):
    text = " ".join(WORDS)
    model = xalign_models.load(f"lusifer:{release}", max_tokens=12)
    np.testing.assert_allclose(model.encode([text], prompt=""), expected(written[1], [text], "", 12), atol=1e-5)
    assert xalign_models.load(f"lusifer:{release}")[0].inner[0].max_seq_length == 32  # the tokenizer's own, below 512


def test_a_saved_model_points_to_the_release(release, workdir):
    model = xalign_models.load(f"lusifer:{release}")
    save(model, workdir / "saved")
    again = xalign_models.load("saved")
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-6)
    assert not list((workdir / "saved").rglob("*.safetensors"))
    retensor(release, lambda tensors: tensors["connection_module.ff.0.bias"].add_(1))
    with pytest.raises(ModelError, match="was fitted on lusifer:.*, which has changed since"):
        xalign_models.load("saved")


def test_halves_are_near(release):
    whole = load_encoder(f"lusifer:{release}").raw.encode(TEXTS)
    encoder = load_encoder(f"lusifer:{release}", dtype="bfloat16")
    assert {weight.dtype for module in encoder.raw.modules for weight in module.parameters()} == {torch.bfloat16}
    halves = encoder.raw.encode(TEXTS)
    assert halves.dtype == np.float32
    cosines = (whole * halves).sum(1) / np.linalg.norm(whole, axis=1) / np.linalg.norm(halves, axis=1)
    assert cosines.min() > 0.99


@pytest.mark.parametrize("tokens", [0, 1])
def test_every_tensor_of_the_real_size_has_its_place(tokens):
    with torch.device("meta"):
        authors = Authors(XLM_R_LARGE, MISTRAL_7B, tokens).state_dict()
    header = {name: TensorHeader("BF16", tuple(tensor.shape)) for name, tensor in authors.items()}
    configs = {"universal_learner": XLM_R_LARGE, "encoder": MISTRAL_7B}
    settings = {**SETTINGS, "num_added_tokens": tokens}
    parts = released.empty_parts(configs, tokens, torch.bfloat16, "meta")
    tensors = released.tensors_of(parts, settings, header)
    released.require_release(tensors, header, "it")
    used = [name for names in tensors.values() for name in names]
    assert len(used) == len(set(used))
    unread = header.keys() - set(used)
    assert {name.split(".")[3] for name in unread} == {"pooler", "lm_head"}
    assert len(tensors) == sum(len(list(part.parameters())) for part in parts.values())
    # 24 layers x 6 linear layers and 32 x 7 have LoRA; the pooler's is unread
    assert sum("lora_A" in name for name in used) == 24 * 6 + 32 * 7
    size = sum(2 * tensor.numel() for tensor in authors.values())
    assert size / 1e9 == pytest.approx(16, abs=0.5)  # as the hub shows model.safetensors: 16 GB
    lacking = {name: one for name, one in header.items() if name != f"{KEY}lora_B.encoder_lora.weight"}
    with pytest.raises(ModelError, match=r"it lacks encoder.*layers\.1\.mlp\.up_proj\.lora_B"):
        released.require_release(released.tensors_of(parts, settings, lacking), lacking, "it")


DAMAGES = {
    "it lacks connection_module.ff.2.bias": lambda tensors: tensors.pop("connection_module.ff.2.bias"),
    f"it lacks {KEY}lora_A.encoder_lora.weight": lambda tensors: tensors.pop(f"{KEY}lora_A.encoder_lora.weight"),
    "it lacks encoder.base_model.model.model.norm.weight": lambda tensors: tensors.pop(
        "encoder.base_model.model.model.norm.weight"
    ),
    "it has connection_module.added_tokens, which the model lacks": lambda tensors: tensors.update(
        {"connection_module.added_tokens": torch.zeros(1, 24)}
    ),
    "it has laten_attention_model.latents, which the model lacks": lambda tensors: tensors.update(
        {"laten_attention_model.latents": torch.zeros(2)}
    ),
    "output_projection.2.weight has the shape (24, 12) instead of (24, 24)": lambda tensors: tensors.update(
        {"output_projection.2.weight": torch.zeros(24, 12)}
    ),
    f"{KEY}lora_A.encoder_lora.weight has the shape (8, 24) instead of (16, 24)": lambda tensors: tensors.update(
        {f"{KEY}lora_A.encoder_lora.weight": torch.zeros(8, 24)}
    ),
    "output_projection.0.bias is of type I64": lambda tensors: tensors.update(
        {"output_projection.0.bias": torch.zeros(24, dtype=torch.int64)}
    ),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_file_of_other_tensors_is_refused_by_name(release, message):
    retensor(release, DAMAGES[message])
    said = refusal(release)
    assert message in said
    assert "is of type" in said or "Download config.json and model.safetensors" in said


SIZES = [
    ("mistral", {"hidden_size": 10**9}),
    ("mistral", {"hidden_size": 10**18}),
    ("mistral", {"vocab_size": 10**12}),
    ("mistral", {"head_dim": 10**11}),
    ("mistral", {"num_hidden_layers": 900}),
    ("mistral", {"num_hidden_layers": 10**9}),
    ("xlm-r", {"hidden_size": 10**9}),
    ("xlm-r", {"max_position_embeddings": 10**11}),
    ("xlm-r", {"intermediate_size": -1}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("base", "sizes"), SIZES)
def test_a_size_that_the_file_has_not_is_refused_before_memory_is_taken(release, workdir, written, base, sizes):
    folder = shutil.copytree(written[0].parent / base, workdir / base)
    change(folder, **sizes)
    part = {"mistral": "encoder", "xlm-r": "universal_learner"}[base]
    change(release, **{f"{part}_name_or_path": str(folder)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal(release, XAlignError)
    change(release, loar_r=10**15)
    refusal(release, XAlignError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 300_000  # kilobytes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"connection_type": "embedding_table"}, "'embedding_table' as connection_type, not 'ff'"),
        ({"num_added_tokens": 2}, "2 as num_added_tokens, not 0 or 1"),
        ({"num_added_tokens": True}, "True as num_added_tokens"),
        ({"pooling_method": ["mean"]}, r"['mean'] as pooling_method"),
        ({"encoder_backbone_type": "nvidia/NV-Embed-v2"}, "as encoder_backbone_type, not 'mistral'"),
        ({"loar_r": 0}, "lacks the rank (loar_r)"),
        ({"lora_alpha": "32"}, "lacks the rank (loar_r)"),
        ({"encoder_name_or_path": None}, "no encoder_name_or_path"),
        ({"encoder_lora_name": 3}, "encoder_lora_name that is not a string"),
        ({"auto_map": {"AutoModel": "code.Class"}}, "has its own code"),
    ],
)
def test_other_settings_are_refused_by_name(release, settings, message):
    change(release, **settings)
    assert message in refusal(release)


def test_base_checkpoints_of_other_kinds_are_refused(release):
    settings = json.loads((release / "config.json").read_text())
    change(release, encoder_name_or_path=settings["universal_learner_name_or_path"])
    assert "its encoder is a xlm-roberta, not a mistral" in refusal(release)


def test_other_files_are_refused(release, workdir):
    weights = release / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-5])
    assert "cut off" in refusal(release)
    weights.unlink()
    assert "has no model.safetensors; a released LUSIFER is config.json and model.safetensors" in refusal(release)
    torch.save({"a": torch.zeros(1)}, release / "pytorch_model.bin")
    assert "pickled weights (pytorch_model.bin)" in refusal(release)
    (release / "pytorch_model.bin").unlink()
    (release / "config.json").unlink()
    assert "has no config.json" in refusal(release)
    assert "There is no model" in refusal(workdir / "nowhere", XAlignError)
    with pytest.raises(ModelError, match="write lusifer:DIRECTORY or lusifer:org/name"):
        find_source("lusifer:")


def test_fields_that_mean_nothing_are_refused(release):
    for field, value in {"layer": 2, "pooling": "cls", "precision": "int8", "revision": "main"}.items():
        assert f"--{field} does not apply to lusifer:" in refusal(release, **{field: value})


def test_the_fingerprint_is_the_content(release, workdir, written):
    first = loading.open_backbone(find_spec(f"lusifer:{release}").backbone).fingerprint
    shutil.copytree(release, workdir / "copy")
    assert loading.open_backbone(find_spec(f"lusifer:{workdir / 'copy'}").backbone).fingerprint == first
    base = shutil.copytree(written[0].parent / "xlm-r", workdir / "xlm-r")
    change(base, layer_norm_eps=0.1)
    change(release, universal_learner_name_or_path=str(base))
    second = loading.open_backbone(find_spec(f"lusifer:{release}").backbone).fingerprint
    change(base, layer_norm_eps=0.2)
    assert len({first, second, loading.open_backbone(find_spec(f"lusifer:{release}").backbone).fingerprint}) == 3


def test_mirrors_serve_the_release_and_its_base_checkpoints(written, workdir, monkeypatch):
    root = written[0].parent
    for name, folder in (("Hieuman/LUSIFER", "release"), ("FacebookAI/xlm", "xlm-r"), ("mistralai/m", "mistral")):
        shutil.copytree(root / folder, workdir / "mirror" / name)
    change(
        workdir / "mirror" / "Hieuman" / "LUSIFER",
        universal_learner_name_or_path="FacebookAI/xlm",
        encoder_name_or_path="mistralai/m",
    )
    monkeypatch.setenv("XALIGN_MODELS", str(workdir / "mirror"))
    encoder = load_encoder("lusifer:Hieuman/LUSIFER")
    assert encoder.mteb_model_meta.name == "xalign/plain__Hieuman-LUSIFER"
    np.testing.assert_allclose(encoder.encode_texts(TEXTS, [None] * 4, ""), expected(written[1], TEXTS, ""), atol=1e-5)
    assert find_source("lusifer:Hieuman/LUSIFER@abc").model == "lusifer:Hieuman/LUSIFER@abc"
    with pytest.raises(ModelError, match="format; write lusifer:Hieuman/LUSIFER"):
        load_encoder("Hieuman/LUSIFER").raw.encode(["w1"])


def test_the_hub_serves_two_files_of_a_commit(written, monkeypatch):
    """As huggingface_hub would: a call for each file, of the commit that the revision stands for."""
    folder, calls = written[0], []

    def download(model, name, **options):
        calls.append((model, name, options["revision"]))
        return str(folder / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(folder))
    monkeypatch.setattr("xalign_models.assets.resolution.hub_commit", lambda model, revision: f"{revision}-commit")
    found = load_encoder("lusifer:Hieuman/LUSIFER@v1").encode_texts(TEXTS, [None] * 4, "")
    np.testing.assert_allclose(found, expected(written[1], TEXTS, ""), atol=1e-5)
    assert {*calls} == {("Hieuman/LUSIFER", name, "v1-commit") for name in ("config.json", "model.safetensors")}
    specs = [find_spec(f"lusifer:Hieuman/LUSIFER{pin}").backbone for pin in ("", "@v1", "@v2")]
    assert len({loading.open_backbone(spec).fingerprint for spec in specs}) == 3


def test_prompts_are_the_authors(release):
    import mteb
    from mteb.types import PromptType

    encoder = load_encoder(f"lusifer:{release}")
    question = "Given a question, retrieve passages that answer the question."
    for task, kind, prompt in (
        ("STS17", None, "Retrieve semantically similar text..\n"),
        ("BelebeleRetrieval", PromptType.query, f"{question}.\n"),
        ("BelebeleRetrieval", PromptType.document, f"{question}. Candidate:\n"),
        ("XNLI", None, "Given a premise, retrieve a hypothesis that is entailed by the premise..\n"),
        ("SIB200ClusteringS2S", None, "Identify the category of the following passages..\n"),
        ("AfriSentiClassification", None, RELEASED["NaijaSenti"]),
    ):
        assert encoder.prompt_for(mteb.get_task(task).metadata, kind) == prompt

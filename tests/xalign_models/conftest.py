"""Models of a few kilobytes that write, as tests of generation and of LiRA need them, and registries that forget."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.registries import restored
from xalign_models import plugins
from xalign_models.plugins import loading
from xalign_models.results.items import full_folder, keep_outcomes, save_items
from xalign_models.specs import BackboneSpec, ModelSpec

QUICK = {
    "minivec2vec": {"clusters": 8, "runs": 2, "rounds": 3, "neighbours": 10},
    "langsae": {"units": 64, "steps": 100},
}
"""Parameters of methods whose fit takes seconds, for tests of what follows it."""
KINDS = ("ALIGNMENTS", "ANALYSES", "BACKBONES", "BENCHMARKS", "CORPORA", "MODULES", "SOURCES", "TASKS")


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers and loads is gone after it."""
    monkeypatch.setattr(loading, "loaded", dict(loading.loaded))
    monkeypatch.setenv(loading.VARIABLE, "")
    before = set(sys.modules)
    with ExitStack() as stack:
        for kind in KINDS:
            stack.enter_context(restored(getattr(plugins, kind)))
        yield
    for name in set(sys.modules) - before:
        if name.startswith(plugins.PACKAGE):
            del sys.modules[name]


@pytest.fixture(scope="session")
def byte_tokenizer() -> Callable[..., Any]:
    """A tokenizer for which a byte is a token, so that any text can be written; with more special tokens if given."""

    def make(extra: tuple[str, ...] = (), **options: Any) -> Any:
        from tokenizers import Tokenizer, decoders, pre_tokenizers
        from tokenizers.models import BPE
        from transformers import PreTrainedTokenizerFast

        words = ["[PAD]", "[BOS]", "[EOS]", *extra, *sorted(pre_tokenizers.ByteLevel.alphabet())]
        tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            pad_token="[PAD]",
            bos_token="[BOS]",
            eos_token="[EOS]",
            additional_special_tokens=list(extra),
            model_max_length=512,
            **options,
        )

    return make


@pytest.fixture(scope="session")
def make_writer(tmp_path_factory: pytest.TempPathFactory, byte_tokenizer: Callable[..., Any]) -> Callable[..., Path]:
    """Writes a random language model of a family with its head, whose tokens are bytes."""

    def make(family: str, **fields: Any) -> Path:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        folder = tmp_path_factory.mktemp("lira") / "writer"
        tokenizer = byte_tokenizer()
        tokenizer.save_pretrained(folder)
        config = AutoConfig.for_model(
            family, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            num_key_value_heads=1, vocab_size=len(tokenizer), max_position_embeddings=2048, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, initializer_range=0.3, **fields,
        )  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(0)
            AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def writer(make_writer: Callable[..., Path]) -> Path:
    """A Llama; never change it."""
    return make_writer("llama")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, byte_tokenizer: Callable[..., Any]) -> Callable[..., Path]:
    """Writes a random m2m100 whose tokenizer has the given language tokens."""

    def make(*languages: str) -> Path:
        import torch
        from transformers import M2M100Config, M2M100ForConditionalGeneration

        folder = tmp_path_factory.mktemp("lira") / "machine"
        tokenizer = byte_tokenizer(languages)
        tokenizer.save_pretrained(folder)
        config = M2M100Config(
            d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=len(tokenizer), max_position_embeddings=256,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
        )  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(0)
            M2M100ForConditionalGeneration(config).save_pretrained(folder)
        return folder

    return make


def list_column(matrix: np.ndarray, kind: str = "fixed") -> Any:
    """Vectors as a column: lists of fixed size, lists, large lists or a tensor."""
    import pyarrow as pa

    rows, dim = matrix.shape
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, dim)
    if kind == "tensor":
        return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(matrix))
    large = kind == "large"
    offsets = pa.array(np.arange(rows + 1) * dim, pa.int64() if large else pa.int32())
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, flat)


@pytest.fixture
def write_vectors() -> Callable[..., Path]:
    """Writes texts and vectors in the form that the file's name says."""

    def write(path: Path, names: Sequence[Any], matrix: np.ndarray, by: str = "text", kind: str = "fixed") -> Path:
        if path.suffix == ".npz":
            np.savez(path, **{by: np.array(names) if len(names) else np.array([], str), "vectors": matrix})
        elif path.suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file({"vectors": matrix}, path, metadata={by: json.dumps(list(names))})
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({by: names, "vector": list_column(matrix, kind)}), path)
        return path

    return write


Put = Callable[..., Path]


def codes(subset: str) -> list[str]:
    return [one.replace("_", "-") for one in subset.split("-")]


def spec_of(baseline: str) -> dict[str, Any]:
    """The spec of a model that has this unaligned one."""
    return ModelSpec(BackboneSpec(baseline.removeprefix("xalign/plain__"), "some/model")).to_dict()


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write one result and return its folder; scores are fractions by subset, ranks arrays by subset."""

    def write(
        model: str,
        task: str,
        scores: dict[str, float],
        *,
        revision: str = "r1",
        date: str | None = "2026-11-21T10:00:00+00:00",
        baseline: str | None = None,
        trained: tuple[str, ...] = (),
        data: str = "d1",
        split: str = "test",
        ranks: dict[str, Any] | None = None,
        languages: dict[str, list[str]] | None = None,
        metric: str = "precision_at_1",
        spec: dict[str, Any] | None = None,
    ) -> Path:
        folder = tmp_path / "results" / model.replace("/", "__", 1) / revision
        folder.mkdir(parents=True, exist_ok=True)
        entries = [
            {
                metric: value,
                "main_score": value,
                "hf_subset": subset,
                "mteb_version": "2",
                "languages": (languages or {}).get(subset, codes(subset)),
            }
            for subset, value in scores.items()
        ]
        when = datetime.fromisoformat(date).timestamp() if date else None
        result = {"task_name": task, "dataset_revision": data, "date": when, "scores": {split: entries}}
        (folder / f"{task}.json").write_text(json.dumps(result))
        arguments = {"spec": spec or spec_of(baseline)} if spec or baseline else {}
        meta = {"name": model, "training_datasets": list(trained), "loader_kwargs": arguments}
        (folder / "model_meta.json").write_text(json.dumps(meta))
        if ranks:
            save_items(full_folder(folder), task, ranks)
            keep_outcomes(folder, task, scores)
        return folder

    return write

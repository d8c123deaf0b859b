"""Random encoders and language models of a few kilobytes, of every family that LUSIFER is claimed to read with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = [f"w{i}" for i in range(100)]
SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
SIZE = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "num_key_value_heads": 1, "head_dim": 12, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2,
    "eos_token_id": 3, "initializer_range": 0.3,
}  # fmt: skip
WINDOW = {"sliding_window": 3}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "mistral-window": {"model_type": "mistral", **WINDOW},
    "qwen2": {},
    "qwen2-window": {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0, **WINDOW},
    "qwen3": {},
    "gemma": {},
    "gemma2": {**WINDOW, "query_pre_attn_scalar": 12},
    "gemma3_text": {
        **WINDOW,
        "query_pre_attn_scalar": 12,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}
"""Name -> fields of its configuration; Gemma 2 and 3 have layers with and layers without a window."""


def write_tokenizer(folder: Path, **tokens: str | None) -> int:
    """A tokenizer for which a word is a token; returns the size of its vocabulary."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    vocabulary = [*SPECIAL, *WORDS]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]", **tokens}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, **{name: one for name, one in names.items() if one}
    ).save_pretrained(folder)
    return len(vocabulary)


def write_llm(folder: Path, family: str = "llama", tokens: dict[str, str | None] | None = None, **fields: Any) -> Path:
    """A random language model with its head."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    size = write_tokenizer(folder, **(tokens or {}))
    known = {"model_type": family, **FAMILIES.get(family, {})}
    config = AutoConfig.for_model(**{**SIZE, "vocab_size": size, **known, **fields})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, make_bert: Callable[..., Path]) -> dict[str, Path]:
    """Directories of an encoder and of a language model of every family; never change them."""
    root = tmp_path_factory.mktemp("checkpoints")
    found = {family: write_llm(root / family, family) for family in FAMILIES}
    return {**found, "encoder": make_bert(root / "encoder", WORDS, initializer_range=0.3)}


@pytest.fixture
def make_lusifer(workdir: Path, checkpoints: dict[str, Path]) -> Callable[..., Any]:
    """A :class:`Lusifer` in evaluation mode: of a family, or of directories of one's own."""

    def make(family: str = "llama", *, encoder: Path | None = None, dtype: str = "float32", **options: Any) -> Any:
        from xalign_models.training.lusifer.module import Lusifer
        from xalign_models.training.lusifer.parts import base_of, load_encoder, load_llm

        llm = base_of(str(checkpoints[family]), None, dtype)
        read = load_encoder(base_of(str(encoder or checkpoints["encoder"]), None, dtype))
        return Lusifer(read, load_llm(llm), llm, **options).eval()

    return make


@pytest.fixture
def english(workdir: Path) -> Path:
    """Training sets of random words in their publishers' layouts, all rows different; $XALIGN_DATA names the folder."""
    import gzip

    import numpy as np

    rng = np.random.default_rng(0)

    def sentences(count: int, least: int = 6) -> list[str]:
        return [" ".join(rng.choice(WORDS, rng.integers(least, least + 8))) for _ in range(count)]

    root = workdir / "data"
    for folder in ("wikitext2", "squad_nqg", "multi30k/task2/raw", "stsbenchmark_en", "sick_en"):
        (root / folder).mkdir(parents=True)
    for part in ("valid", "test"):
        (root / "wikitext2" / f"{part}.txt").write_text(" = Title = \n\n" + " . \n".join(sentences(20)) + " . \n")
    for side in ("src", "tgt"):
        (root / "squad_nqg" / f"{side}-test.txt").write_text("\n".join(sentences(40)) + "\n")
    for number in range(1, 6):
        file = root / "multi30k" / "task2" / "raw" / f"train.{number}.en.gz"
        file.write_bytes(gzip.compress(("\n".join(sentences(40)) + "\n").encode()))
    pairs = list(zip(sentences(20), sentences(20), strict=True))
    rows = [f"g\tf\ty\t{i}\t{3 + i % 3}.0\t{one}\t{other}" for i, (one, other) in enumerate(pairs)]
    (root / "stsbenchmark_en" / "sts-train.csv").write_text("\n".join(rows) + "\n")
    judged = [
        f"{i}\t{one}\t{other}\t{3 + i % 3}.0\t{('NEUTRAL', 'ENTAILMENT')[i % 2]}"
        for i, (one, other) in enumerate(pairs)
    ]
    (root / "sick_en" / "SICK_train.txt").write_text("pair_ID\tA\tB\tr\tj\n" + "\n".join(judged) + "\n")
    return root


@pytest.fixture
def write_config(workdir: Path, checkpoints: dict[str, Path]) -> Callable[..., str]:
    """Writes a configuration of tiny parts, both stages on made-up text; fields go over it as ``--config`` does."""
    import yaml

    def write(file: str = "tiny.yaml", family: str = "llama", **fields: Any) -> str:
        from xalign_models.configuration import merged

        data = [{"source": "multi30k", "samples": 24}, {"source": "squad-nqg", "samples": 12, "task": "completion"}]
        shared = {"batch_size": 8, "learning_rate": 1.0e-2, "checkpoint_steps": 2, "data": data}
        # LoRA of rank 2: encoder 2 layers x (4 of 16x16, 16x32, 32x16), language model by its shapes
        config = {
            "name": "tiny",
            "encoder": str(checkpoints["encoder"]),
            "llm": str(checkpoints[family]),
            "max_tokens": 16,
            "dtype": "float32",
            "rank": 2,
            "alpha": 4,
            "parameters": {"encoder": 896, "connector": 704, "llm": 1344},
            "stages": {
                1: {"label": "tiny-one", "train": ["encoder", "connector"], **shared},
                2: {"label": "tiny-two", "start": "tiny-one", "train": ["encoder", "connector", "llm"], **shared},
            },
        }
        (workdir / file).write_text(yaml.safe_dump(merged(config, fields)))
        return str(workdir / file)

    return write

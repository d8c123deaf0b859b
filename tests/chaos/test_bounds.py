"""Files that ask for time or memory end in one line, each in a process whose time and memory are measured."""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.chaos.killing import command, run
from tests.xalign_models.backbones.test_policy import adapter, edit

MOST_SECONDS, MOST_BYTES = 30, 2 << 30
"""Limits of time and of memory beyond that of the process before."""


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def hollow(path: Path, descr: str = "<f8", shape: tuple[int, ...] = (12 << 27,), size: int = 0) -> None:
    """An NPZ file whose array says to be longer than it is, or that unpacks to ``size`` zeros."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("hits.npy", "w", force_zip64=True) as file,
    ):
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))


def repeated(path: Path) -> None:
    """A table of 1 MB with one text of 1 MB, 4,000 times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"en": texts, "de": texts}), path)


def tokenizer(folder: Path, **fields: Any) -> None:
    edit(folder / "tokenizer.json", **fields)


def replacing(content: str, times: int = 1, **pattern: str) -> dict[str, Any]:
    part = {"type": "Replace", "pattern": pattern or {"String": "e"}, "content": content}
    return {"type": "Sequence", "normalizers": [part] * times}


def template(tokens: int) -> dict[str, Any]:
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * tokens
    single.append({"Sequence": {"id": "A", "type_id": 0}})
    special = {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}}
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def adapted(folder: Path, **fields: Any) -> None:
    base = Path(shutil.copytree(folder, folder.with_name("base")))
    adapter(folder, str(base), **fields)


def field(number: int, content: bytes, wire: int = 2) -> bytes:
    """A field of a protobuf message."""
    length, digits = len(content), b""
    while length > 127:
        length, digits = length >> 7, digits + bytes([length & 127 | 128])
    return bytes([number << 3 | wire]) + (digits + bytes([length]) if wire == 2 else b"") + content


def sentencepiece(
    folder: Path, *, longest: int = 3, number: int = 3, before: bytes = b"", name: str = "x.model"
) -> None:
    chart = (8).to_bytes(4, "little") + bytes(8) + b"a\0" + b"x" * longest + b"\0"
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(field(1, field(1, b"a")) + before + field(number, field(2, chart)))


SLOW = "(" + "a?" * 3 + "[a-z_.]+)+!"
MODELS: dict[str, Callable[[Path], Any]] = {
    "an adapter's modules as a pattern": partial(adapted, target_modules="(.+)+!"),
    "an adapter's excluded modules": partial(adapted, target_modules=["query"], exclude_modules=SLOW),
    "an adapter's layers": partial(adapted, target_modules=["query"], layers_to_transform=[0], layers_pattern=[SLOW]),
    "an adapter's ranks by pattern": partial(adapted, target_modules=["query"], rank_pattern={SLOW: 4}),
    "an adapter's rank": lambda folder: (adapted(folder, target_modules=["query"]), edit(
        folder / "adapter_config.json", r=10**9))[0],
    "a tokenizer's long replacement": partial(tokenizer, normalizer=replacing("x" * 100_000)),
    "a tokenizer's chain of replacements": partial(tokenizer, normalizer=replacing("ee", 40)),
    "a tokenizer's replacement of nothing": partial(tokenizer, normalizer=replacing("ee", 40, Regex="")),
    "a tokenizer's template": partial(tokenizer, post_processor=template(10**5)),
    "a tokenizer's pattern": partial(tokenizer, pre_tokenizer=split("(a+)+$")),
    "a tokenizer's pattern of two repetitions": partial(tokenizer, pre_tokenizer=split("a+.*a+!")),
    "a tokenizer's pattern of options": partial(tokenizer, pre_tokenizer=split("a?" * 30 + "!")),
    "a tokenizer's pattern of bounded repetitions": partial(tokenizer, pre_tokenizer=split("(?:a{1,9}){1,9}!")),
    "a tokenizer's pattern of a repeated repetition": partial(tokenizer, pre_tokenizer=split("a{1,3}+!")),
    "a tokenizer's pattern with spaces": partial(tokenizer, pre_tokenizer=split("(?x)a{1,9} +!")),
    "a tokenizer's pattern behind a control character": partial(tokenizer, pre_tokenizer=split(r"\c[a+b+a+a+]!")),
    "a tokenizer's many patterns": partial(tokenizer, pre_tokenizer={"type": "Sequence", "pretokenizers": [
        split("a*!")] * 40}),
    "a SentencePiece chart": partial(sentencepiece, longest=100_000),
    "a SentencePiece chart for the way back": partial(sentencepiece, longest=100_000, number=5),
    "a SentencePiece chart behind a group": partial(sentencepiece, longest=100_000, before=b"\x33\x34"),
    "a SentencePiece chart in a folder": partial(sentencepiece, longest=100_000, name="1_Other/spiece.model"),
    "a SentencePiece file that is cut short": lambda folder: (folder / "x.model").write_bytes(b"\x1a\x7f\x12"),
    "a tokenizer's pattern in a replacement": partial(tokenizer, normalizer=replacing("x", Regex="(a|aa)+$")),
    "a tokenizer's padding": partial(tokenizer, padding={"strategy": {"Fixed": 10**9}, "direction": "Right",
        "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}),
    "a tokenizer's prefix": partial(tokenizer, normalizer={"type": "Prepend", "prepend": "x" * 10**7}),
    "settings of 70 MB": lambda folder: [edit(folder / f"config{i}.json", x="x" * (10 << 20)) for i in range(7)],
    "a pipe as settings": lambda folder: pipe(folder / "config.json"),
}  # fmt: skip
RESULTS: dict[str, Callable[[Path], Any]] = {
    "items that declare 12 GiB": hollow,
    "items that unpack to 4 GiB": partial(hollow, shape=(4 << 27,), size=4 << 30),
    "items with rows of nothing": partial(hollow, shape=(10**12, 0)),
    "a pipe as items": pipe,
    "a device as items": device,
}
FILES: dict[str, tuple[str, Callable[[Path], Any], tuple[str, ...]]] = {
    "a pipe as baseline": ("old.json", pipe, ("gate", "--against", "old.json")),
    "a device as baseline": ("old.json", device, ("gate", "--against", "old.json")),
    "a pipe as throughput": ("old.jsonl", pipe, ("gate", "--throughput", "old.jsonl", "old.jsonl")),
    "a line of 200 MB": ("en.txt", lambda path: path.write_bytes(b"x" * (200 << 20)), ()),
    "a pipe as text": ("en.txt", pipe, ()),
    "a device as text": ("en.txt", device, ()),
    "a table that repeats a text": ("table.parquet", repeated, ()),
}
CASES = [*(("model", name) for name in MODELS), *(("results", name) for name in RESULTS), *(("file", n) for n in FILES)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), CASES, ids=[name for _, name in CASES])
def test_a_file_that_asks_for_time_or_memory_ends_in_one_line(kind, name, tmp_path, tiny_model, loaded):
    folder = tmp_path / "place" / "work"
    folder.mkdir(parents=True)
    place = folder / "results" / "org__model" / "1" / "items"
    place.mkdir(parents=True)
    scores = {"test": [{"hf_subset": "default", "languages": ["deu-Latn"], "main_score": 0.5}]}
    (place.parent / "Task.json").write_text(json.dumps({"task_name": "Task", "scores": scores}))
    (place.parent / "model_meta.json").write_text(json.dumps({"name": "org/model"}))
    if kind == "model":
        MODELS[name](Path(shutil.copytree(tiny_model, folder / "model")))
        body: Callable[[], Any] = lambda: load_all(Path("model"))  # noqa: E731
    elif kind == "results":
        RESULTS[name](place / "Task.npz")
        body = lambda: read_items(place / "Task.npz")  # noqa: E731
    else:
        file, make, arguments = FILES[name]
        make(folder / file)
        body = command(*arguments) if arguments else lambda: read_text(Path(file))
    start = time.monotonic()
    ended = run(lambda: measured(body, tmp_path / "peak"), folder, after=2 * MOST_SECONDS)
    seconds, peak = time.monotonic() - start, int((tmp_path / "peak").read_text())
    if log := os.environ.get("XALIGN_CHAOS_LOG"):
        with Path(log).open("a") as handle:
            said = ended.printed.strip().splitlines()[-1:]
            handle.write(json.dumps({"case": name, "s": round(seconds, 2), "MB": peak >> 20, "said": said}) + "\n")
    assert ended.status in (1, 2, 3), ended.printed
    assert "Traceback" not in ended.printed
    assert len([line for line in ended.printed.splitlines() if line.strip()]) == 1 or kind == "file", ended.printed
    assert seconds < MOST_SECONDS
    assert peak < MOST_BYTES


def measured(body: Callable[[], Any], note: Path) -> None:
    """Run ``body`` with the error of ours on one line, and note by how much the process grew at most, in bytes."""
    from xalign_models.errors import XAlignError

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        body()
    except XAlignError as error:
        print(error)  # noqa: T201
        raise SystemExit(2) from None
    finally:
        note.write_text(str((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10))


def load_all(folder: Path) -> None:
    from xalign_models.models.building import load

    model = load(str(folder), device="cpu")
    np.asarray(model.encode(["e" * 1000 + "a" * 40 + "!"] * 4))


def read_items(path: Path) -> None:
    from xalign_models.errors import FileError
    from xalign_models.files import read_npz
    from xalign_models.results.items import MOST, read_outcomes

    assert read_outcomes(path) == {}
    raise FileError(str(read_npz(path, most=MOST)))


def read_text(path: Path) -> None:
    from xalign_models.corpora.base import read_lines
    from xalign_models.corpora.own_text import _table

    _table(path) if path.suffix == ".parquet" else read_lines(path)


@pytest.fixture(scope="module")
def loaded() -> None:
    """Import once what the forked processes need."""
    import sentence_transformers  # noqa: F401

    import xalign_models.boards.gate
    import xalign_models.models.building  # noqa: F401

"""Stores of damage or malice: true vectors, vectors that are encoded again, or one line; never another vector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.chaos.hostile import WHOLE
from tests.chaos.killing import run
from xalign_models.backbones.raw import key
from xalign_models.errors import XAlignError

KEYS = [key("", str(number)) for number in range(300)]
VECTORS = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
FILES = ("data.mdb", "lock.mdb")
CRAFTED = [(file, change) for file in FILES for change in WHOLE]


def fill(path: Path) -> None:
    from xalign_models.store import EmbeddingStore

    with EmbeddingStore(path) as store:
        store.put("one", KEYS, VECTORS)


def use(path: Path) -> None:
    from xalign_models.store import EmbeddingStore

    try:
        with EmbeddingStore(path) as store:
            rows = store.get("one", KEYS)
            assert all(row is None or np.array_equal(row, VECTORS[i]) for i, row in enumerate(rows))
            store.put("one", KEYS, VECTORS)
            np.testing.assert_array_equal(np.stack(store.get("one", KEYS)), VECTORS)
    except XAlignError as error:
        print(error)  # noqa: T201
        raise SystemExit(2) from None


@pytest.mark.parametrize(("file", "change"), CRAFTED, ids=[f"{file}-{change}" for file, change in CRAFTED])
def test_a_crafted_store_gives_no_other_vector(file: str, change: str, tmp_path: Path) -> None:
    folder = tmp_path / "place" / "work"
    folder.mkdir(parents=True)
    assert run(lambda: fill(folder / "store"), folder, after=60).status == 0
    WHOLE[change](folder / "store" / file)
    before = set(tmp_path.iterdir()) | set(folder.parent.iterdir())
    ended = run(lambda: use(folder / "store"), folder, after=60)
    assert ended.status in {0, 2}, ended.printed
    assert "Traceback" not in ended.printed
    assert ended.status == 0 or len(ended.printed.strip().splitlines()) == 1, ended.printed
    assert set(tmp_path.iterdir()) | set(folder.parent.iterdir()) == before

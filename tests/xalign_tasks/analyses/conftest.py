"""What the analyses' tests share: a typology of a few languages, and small corpora in the publishers' layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from xalign_models import typology
from xalign_models.languages import canonical, to_iso639_1
from xalign_tasks.analyses import base

WORDS = [f"w{i}" for i in range(100)]
OTHERS = ("deu", "fra", "spa", "tur")


@pytest.fixture
def made_up_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task is there, with revision 1 of its text."""
    task = SimpleNamespace(metadata=SimpleNamespace(dataset={"revision": "1"}))
    monkeypatch.setattr(base, "make_task", lambda *_: task)


@pytest.fixture
def uriel(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict]:
    """Random syntax, planted families; what is put into it is seen."""
    rng = np.random.default_rng(0)
    codes = ["eng", *OTHERS, "rus", "eus", "jpn", "fin", "hin"]
    families = {
        "eng": ["Indo-European", "Germanic"],
        "deu": ["Indo-European", "Germanic"],
        "fra": ["Indo-European", "Italic"],
        "spa": ["Indo-European", "Italic"],
        "tur": ["Turkic"],
        "eus": [],
    }
    content = {
        "syntax": {code: "".join(map(str, rng.integers(0, 2, 40))) for code in codes},
        "families": {code: families.get(code, [code.title()]) for code in codes},
    }
    monkeypatch.setattr(typology, "load_uriel", lambda: content)
    return content


@pytest.fixture
def write_tatoeba() -> Callable[..., None]:
    """LASER's layout under ``root/data``: random words, English beside each language."""

    def write(root: Path, rows: int, languages: Sequence[str] = OTHERS) -> None:
        folder = root / "data" / "tatoeba" / "v1"
        folder.mkdir(parents=True, exist_ok=True)
        for seed, language in enumerate(languages):
            for side, offset in ((language, 0), ("eng", 1000)):
                lines = "".join(f"{line}\n" for line in sentences(rows, seed + offset))
                (folder / f"tatoeba.{language}-eng.{side}").write_text(lines)

    return write


@pytest.fixture
def write_fit_text() -> Callable[..., None]:
    """lingua's and newstest's layout under ``root/data``; newstest has the first two languages, line by line."""

    def write(root: Path, rows: int, languages: Sequence[str] = ("eng", *OTHERS)) -> None:
        lingua, news = root / "data" / "lingua_sentences" / "sentences", root / "data" / "wmt_newstest" / "2008"
        for folder in (lingua, news):
            folder.mkdir(parents=True, exist_ok=True)
        for seed, language in enumerate(languages):
            code = to_iso639_1(canonical(language))
            (lingua / f"{code}.txt").write_text("".join(f"{line}\n" for line in sentences(rows, 2000 + seed)))
            if seed < 2:
                (news / f"newstest2008.{code}").write_text(
                    "".join(f"{line}\n" for line in sentences(rows, 3000 + seed))
                )

    return write


def sentences(rows: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(rows)]


@pytest.fixture
def flores(workdir: Path) -> Path:
    """FLORES-200's layout with random words: English, German, French."""
    folder = workdir / "data" / "flores200_dataset" / "devtest"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for code in ("eng_Latn", "deu_Latn", "fra_Latn"):
        lines = (" ".join(rng.choice(WORDS, 7)) for _ in range(30))
        (folder / f"{code}.devtest").write_text("".join(f"{line}\n" for line in lines))
    return workdir

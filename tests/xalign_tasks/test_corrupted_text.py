"""Every registered task notices text that is not what it is called: its score falls, or it refuses.

Each task gets made-up text in its publisher's layout and an encoder that knows what every sentence means, so that its
score is (nearly) perfect. Then labels are swapped, one side is shifted by one row, or a language's text is replaced by
another's. In tasks without labels, the label is the language that a file is named after.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from tests.xalign_tasks.corruptions import CASES, DIM, Case, content, space
from xalign_models.errors import DataError
from xalign_models.plugins import TASKS
from xalign_tasks.zero_shot.task import ZeroShotTask

FALL = 0.02
"""The mean over a task's languages falls by two points at least."""


class Aligned(AbsEncoder):
    """Takes away what the stated language has; right only if the text ``deu-Latn 7`` is said to be German."""

    def __init__(self) -> None:
        self.mteb_model_meta = ModelMeta.create_empty(
            {"name": "test/aligned", "revision": "1", "similarity_fn_name": ScoringFunction.COSINE}
        )

    def encode(self, inputs: Any, **_: Any) -> np.ndarray:
        pairs = [pair for batch in inputs for pair in zip(batch["text"], batch["lang"], strict=True)]
        return np.stack([self.vector(*pair) for pair in pairs]).astype(np.float32)

    def vector(self, text: str, stated: str) -> np.ndarray:
        language, meaning = text.split()[:2]  # a sentence may have its paragraph behind it
        (turn, shift), (undo, back) = space(language), space(stated)
        noise = 1e-3 * np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIM)
        return (content(meaning) @ turn + shift - back) @ np.linalg.inv(undo) + noise


@pytest.fixture
def score(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Case, str | None], float]:
    """Mean main score of a case, after a corruption if one is named."""
    from xalign_models import assets
    from xalign_models.corpora import file_digest, read_lines

    data = workdir / "data"
    monkeypatch.setattr(assets, "where", lambda _: data / "gettext")
    monkeypatch.setattr(assets, "install", lambda _: data / "gettext")
    monkeypatch.setattr(assets, "fingerprint", lambda _: file_digest(data / "gettext" / "corpus.jsonl"))

    def stars(self: Any, language: str, part: str, missing: Any) -> tuple[list[str], list[str]]:
        folder = data / "stars" / language
        return read_lines(folder / f"{part}_text.txt"), read_lines(folder / f"{part}_labels.txt")

    monkeypatch.setattr(ZeroShotTask, "hub_part", stars)

    def run(case: Case, corruption: str | None = None) -> float:
        shutil.rmtree(data)
        data.mkdir()
        case.write(data)
        if (data / "own").is_dir():
            monkeypatch.setenv("XALIGN_OWN", str(data / "own"))
        if corruption:
            case.corruptions[corruption](data)
        task = case.make()
        if case.subsets:
            task.hf_subsets = [subset for subset in task.hf_subsets if subset in case.subsets]
            assert len(task.hf_subsets) == len(case.subsets)
        scores = task.evaluate(Aligned(), encode_kwargs={"batch_size": 64})
        return float(np.mean([of_subset["main_score"] for of_subset in scores.values()]))

    return run


def test_every_registered_task_is_here() -> None:
    assert CASES.keys() == {task for _, task in TASKS.items()}


@pytest.mark.parametrize("task", CASES, ids=lambda task: task.__name__)
def test_the_score_falls_or_the_run_is_refused(task: type[Any], score: Callable[..., float]) -> None:
    case = CASES[task]
    clean = score(case)
    assert clean > 0.9
    for corruption in case.corruptions:
        try:
            assert score(case, corruption) < clean - FALL, corruption
        except DataError:
            continue

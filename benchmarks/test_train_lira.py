"""A step of LiRA's two stages: texts of mixed lengths, shapes with random weights.

Stage 1 compares oneDNN's linear layers with torch's own. Stage 2 compares streams of text vectors that are computed
once with streams that each step computes again.
"""

import math

import pytest
import torch

from benchmarks.devices import every_device
from benchmarks.shapes import SMALL, mixed_texts, write_checkpoint
from xalign_models.languages import TaggedText
from xalign_models.linalg import onednn
from xalign_models.training.lira.arca import Arca
from xalign_models.training.lira.candidates import Candidates
from xalign_models.training.lira.config import ArcaConfig, Design, LasrConfig
from xalign_models.training.lira.data import Rated, Search, Split
from xalign_models.training.lira.lasr import Lasr, Streams
from xalign_models.training.lira.module import LiRA

ENCODER, BATCH, CANDIDATES = "MiniLM-L3, random weights", 32, 3


@pytest.fixture(params=[pytest.param(ENCODER, marks=pytest.mark.quick), *(name for name in SMALL if name != ENCODER)])
def shape(request) -> str:
    """Shape of the English path."""
    return request.param


@pytest.fixture
def module(shape, device, tmp_path):
    """A LiRA with a small encoder, and an encoder or a language model as its English path."""
    for part, name in (("multilingual", ENCODER), ("english", shape)):
        write_checkpoint(SMALL[name].config(), tmp_path / part)
    design = Design(multilingual=str(tmp_path / "multilingual"), english=str(tmp_path / "english"))
    return LiRA.begin(design).to(device)


def tokens_of(texts) -> int:
    return sum(len(text.split()) + 2 for text in texts)


def step_of(stage, rows: int):
    """A step of a stage as the trainer runs it, on rows of its training set; it returns the loss."""
    weights = [weight for weight in stage.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=1e-5)

    def step() -> float:
        loss = stage(stage.collate([{"row": row} for row in range(rows)]))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stage.step()
        return float(loss.detach())

    return step


@every_device
def test_arca(module, compare, note):
    texts = mixed_texts(BATCH * (1 + CANDIDATES))
    made = [texts[BATCH + i :: BATCH] for i in range(BATCH)]
    mask, scores = torch.ones(BATCH, CANDIDATES, dtype=torch.bool), torch.zeros(BATCH, CANDIDATES, 3)
    examples = Candidates(texts[:BATCH], made, mask, scores)
    stage = Arca(module, examples, examples.rows([]), ArcaConfig(batch_size=BATCH))
    step = step_of(stage, BATCH)

    def ours() -> float:
        with onednn.Linear():
            return step()

    pair = compare(ours, step, "torch's linear layers", 3)
    assert math.isfinite(pair.ours)
    note(rows_per_s=BATCH / pair.seconds, tokens_per_s=tokens_of(texts) / pair.seconds)


@every_device
def test_lasr(module, compare, note):
    texts = [TaggedText(text, "deu-Latn") for text in mixed_texts(4 * BATCH)]
    rated = [Rated(a, b, i % 6) for i, (a, b) in enumerate(zip(texts[:BATCH], texts[BATCH : 2 * BATCH], strict=True))]
    asked = [Search(a, b) for a, b in zip(texts[2 * BATCH : 3 * BATCH], texts[3 * BATCH :], strict=True)]
    ranking, retrieval = (Split(rows) for rows in (rated, asked))
    stage = Lasr(module, ranking, retrieval, LasrConfig(ranking_batch=BATCH, retrieval_batch=BATCH))
    step, once = step_of(stage, 2 * BATCH), stage.streams

    def ours() -> float:
        stage.streams = once
        with onednn.Linear():
            return step()

    def theirs() -> float:
        with onednn.Linear():
            stage.streams = Streams(module, texts)
            return step()

    pair = compare(ours, theirs, "both paths in each step", 3)
    assert math.isfinite(pair.ours)
    tokens = tokens_of(tagged.text for tagged in texts)
    note(rows_per_s=2 * BATCH / pair.seconds, tokens_per_s=tokens / pair.seconds)

"""Both stages in two processes, with and without FSDP, train what one process with the whole batch trains."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from xalign_models.training import processes
from xalign_models.training.lira import run
from xalign_models.training.records import LOG

FSDP = files("xalign_models.training.lusifer") / "accelerate" / "fsdp.yaml"
UNSEEN = ("key.bias", "actor.net.6.bias")
"""No softmax sees a shift of all that it compares: their gradient is the rounding of zero, which Adam enlarges."""
APART = 4e-6
"""Root mean square difference of weights: a fifth of a step of the least learning rate.

Single weights differ more where their gradient is near zero.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("two", "sharded"), [("two", None), ("shards", FSDP)])
def test_two_processes_train_what_one_does_with_the_doubled_batch(
    lira_config: Callable[..., Any],
    make_model: Callable[..., Path],
    workdir: Path,
    launch: Callable[..., str],
    two: str,
    sharded: Path | None,
) -> None:
    dry = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # drawn in parts otherwise
    encoder = make_model(workdir / "dry", **dry)
    changes = (
        f"design.multilingual={encoder}",
        "arca.batch_size=10",
        "arca.max_steps=5",
        "lasr.ranking_batch=6",
        "lasr.retrieval_batch=8",
        "lasr.max_steps=5",
        "lasr.refresh=2",
        "lasr.rate=1e-3",
    )
    config = lira_config(*changes)
    run.train_arca(config, workdir / "one-arca", "cpu")
    run.train_lasr(config, workdir / "one-arca", workdir / "one", "cpu")
    command = ["train", "lira", "--stage", "all", "--config", "lira.yaml", "--device", "cpu", "-o"]
    printed = launch(*command, two, *(part for change in changes for part in ("--set", change)), sharded=sharded)
    assert printed == f"xalign/lira__dry__writer: {two}\n"
    for stage in ("-arca", ""):
        expected, found = (run.open_lira(workdir / f"{name}{stage}") for name in ("one", two))
        assert expected.network.tuned == found.network.tuned
        weights = found.network.state_dict()
        for name, weight in expected.network.state_dict().items():
            if not name.endswith(UNSEEN):
                assert float((weights[name] - weight).norm()) <= APART * weight.numel() ** 0.5, name
        logs = [
            [json.loads(line) for line in (workdir / f"{name}{stage}" / LOG).read_text().splitlines()]
            for name in ("one", two)
        ]
        for one, other in zip(*logs, strict=True):
            assert one.keys() == other.keys()
            for name in one.keys() - {"seconds", "rows", "tokens", "kind", "chosen", "text"}:
                assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-4, nan_ok=True), name
    begun = run.open_lira(workdir / "one-arca").network.state_dict()
    assert not torch.allclose(begun["fusion.projection.weight"], found.network.state_dict()["fusion.projection.weight"])


def test_a_batch_that_cannot_be_shared_is_refused(
    lira_config: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xalign_models.errors import ModelError

    monkeypatch.setattr(processes, "process_count", lambda: 2)
    with pytest.raises(ModelError, match=r"arca\.batch_size 9 cannot be shared by 2 processes"):
        run.train_arca(lira_config(), tmp_path / "a", "cpu")

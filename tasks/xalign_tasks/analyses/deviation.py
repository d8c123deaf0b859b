"""LiRA's two errors during training, and the derived bounds on the representation (its Tables 11 and 12)."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.errors import ModelError
from xalign_models.training.lira.run import open_lira
from xalign_tasks.analyses.base import load_sentences, published_rows
from xalign_tasks.analyses.rkhs import sentence_norms


def bound_printed(epsilon_1: Any, epsilon_2: Any, c: float, lipschitz: float = 1.0) -> Any:
    """Eq. 10 (eq. 15 with a Lipschitz constant): ``L (eps1 + C sqrt(2 eps2))``.

    It can be violated: it holds only if eps1 bounds ``||g(x) - h(y*)||``, which is not observable. The two errors are
    numbers or columns.

    Args:
        epsilon_1: Observed distance of the two paths, ``||g(x) - h(y)||`` of a text x and its translation y.
        epsilon_2: Divergence of the translation's meaning, ``KL(p(s|x) || p(s|y))``, in nats.
        c: Largest norm of a feature, ``||phi(s)|| <= C`` for ``h(y) = E[phi(s)]``.
        lipschitz: Lipschitz constant of the downstream head.
    """
    return lipschitz * (epsilon_1 + c * np.sqrt(2 * epsilon_2))


def bound_safe(epsilon_1: Any, epsilon_2: Any, c: float, lipschitz: float = 1.0) -> Any:
    """``L (eps1 + 2 C sqrt(eps2))``, which holds for observable distances; arguments as in :func:`bound_printed`.

    For an ideal translation y*, ``z* = [h(y*), h(y*)]`` and ``t = C sqrt(2 eps2)``, Pinsker gives
    ``||h(y) - h(y*)|| <= t``, so ``||z - z*|| <= sqrt((eps1 + t)^2 + t^2) <= eps1 + sqrt(2) t``.
    """
    return lipschitz * (epsilon_1 + 2 * c * np.sqrt(epsilon_2))


ROWS = 1000
COLUMNS = ("epoch", "similarity", "mismatched", "english_mismatched", "loss", "anchor_loss", "policy_loss", "reward",
           "epsilon_1", "epsilon_2")  # fmt: skip


def analyse(request: Request) -> Findings:
    """The epochs of stage 1 of trained LiRAs, with the bound of eq. 10 as printed and its corrected form.

    Raises:
        ModelError: No model is named, two have the same title, or a model is not a trained LiRA.
        DataError: There is no text to estimate C on.
    """
    sentences, study = load_sentences(request, ROWS)
    for title, name in request.titled().items():
        module = open_lira(Path(name))
        if not module.history:
            raise ModelError(f"--model {name}: its stage 1 was not trained, so there are no epochs to show.")
        english = module.backbones["english"].model
        norms = sentence_norms(english, sentences.texts, request.device)["without special tokens"]["norm"]
        frame = study.add("epochs", bounded(pd.DataFrame(module.history), float(norms.max())), model=title)
        study.figures[f"epochs-{title}"] = draw(frame, title)
    paper = published_rows("lira-table-11.csv", "subset").rename(columns={"subset": "epoch"})
    epochs = paper["epoch"].str.removeprefix("epoch ").astype(int)
    study.add("epochs", paper.assign(epoch=epochs).sort_values("epoch"), model="LiRA, Table 11 [paper]")
    return study.findings(
        "Similarity, epsilon_1 (distance of the two paths, eq. 25) and epsilon_2 (1 - cosine of frozen states, eq. 28) "
        "are of held-out texts with the translation that the actor chooses.",
        "mismatched: cosine of texts with translations of others; english_mismatched: of translations with each other, "
        "which no training changes. A collapse would lift the first far above the second.",
        "The bounds are indicative: epsilon_2 is a cosine distance and no divergence in nats, and C is the largest "
        "mean norm of the text, a lower bound. bound_printed can be violated; bound_safe holds.",
    )


def bounded(history: pd.DataFrame, c: float) -> pd.DataFrame:
    """The measured epochs with C and both bounds."""
    frame = history[[column for column in COLUMNS if column in history]]
    if {"epsilon_1", "epsilon_2"} <= set(frame):
        errors = frame["epsilon_1"], frame["epsilon_2"].clip(lower=0)
        frame = frame.assign(C=c, bound_printed=bound_printed(*errors, c), bound_safe=bound_safe(*errors, c))
    return frame


def draw(frame: pd.DataFrame, title: str) -> Figure:
    """Similarity and loss, the two errors, and the bounds, by epoch."""
    figure, (axes,) = figures.canvas(1, 3, width=13.0, height=4.0)
    panels = (
        ("similarity and loss", "cosine; loss", ("similarity", "mismatched", "loss")),
        ("the two errors", "epsilon_1: distance; epsilon_2: 1 - cosine", ("epsilon_1", "epsilon_2")),
        ("bounds on the deviation (indicative)", "distance", ("bound_printed", "bound_safe")),
    )
    for axis, (heading, unit, columns) in zip(axes, panels, strict=True):
        figures.draw_lines(axis, {name: (frame["epoch"], frame[name]) for name in columns if name in frame})
        figures.from_zero(axis)
        axis.legend()
        figures.describe(axis, heading, "epoch", unit)
    figure.suptitle(title)
    return figure

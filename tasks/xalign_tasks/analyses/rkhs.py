"""Norm of the unnormalised mean of a text's input embeddings, a surrogate for LiRA's constant C (its Table 6)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.backbones import loading
from xalign_models.device import pick_device
from xalign_models.errors import ModelError
from xalign_models.models.names import find_spec
from xalign_tasks.analyses.base import PUBLISHED, load_sentences, published_rows, statistics

ROWS = 4000
MOST_TOKENS = 8192
"""The paper's maximum; no model limits the length of a mean of embeddings."""
COLUMNS = ("max", "mean", "std", "median", "p90", "p95", "p99", "count")
"""The columns of the paper's Tables 6 and 7."""
POLICIES = {"with special tokens": True, "without special tokens": False}


def analyse(request: Request) -> Findings:
    """Norms of eq. 19 and their statistics of eq. 20, with and without special tokens, next to the texts' lengths."""
    sentences, study = load_sentences(request, ROWS)
    for name in request.named():
        spec = find_spec(name)
        model = spec.name.removeprefix("xalign/").removeprefix("plain__")
        norms_by_policy = sentence_norms(name, sentences.texts, request.device)
        for policy, frame in norms_by_policy.items():
            labels = {"model": model, "tokens": policy, "text": sentences.name}
            study.add("statistics", [statistics(frame["norm"].to_numpy(), COLUMNS)], **labels)
            study.add("lengths", by_length(frame), **labels)
        study.figures[f"norms-{spec.backbone.name}"] = draw(norms_by_policy, spec.backbone.name, sentences.name)
    wide = published_rows("lira-table-06.csv", "model").rename(columns=lambda column: column.removeprefix("norm_"))
    names = wide.pop("model") + " [paper]"
    study.add("statistics", wide, model=names, tokens="", text=PUBLISHED)
    return study.findings(
        "A norm of means is a lower bound of the largest norm of a feature: values computed from it are optimistic.",
        "The mean of many tokens tends to be short and single tokens to be long: read a maximum with the lengths.",
        "A vector of unit length needs C of at least 1: these norms do not apply to normalised embeddings.",
    )


@torch.inference_mode()
def sentence_norms(name: str, texts: Sequence[str], device: str | None = None) -> dict[str, pd.DataFrame]:
    """Norm and length in tokens of each text, by policy for special tokens.

    Raises:
        ModelError: The model has no tokenizer or no table of embeddings, or there is no such device.
    """
    first: Any = loading.open_backbone(find_spec(name).backbone).modules(on := pick_device(device))[0]
    if not hasattr(first, "model") or not hasattr(first.model, "get_input_embeddings"):
        raise ModelError(f"--model {name}: it has no input embeddings; name a transformer.")
    embedding, special = first.model.get_input_embeddings(), set(first._special_ids())
    ids = first.tokenizer(list(texts), truncation=True, max_length=MOST_TOKENS)["input_ids"]
    frames: dict[str, pd.DataFrame] = {}
    for policy, with_special in POLICIES.items():
        tokens = [[token for token in row if with_special or token not in special] or row for row in ids]
        norms = [float(embedding(torch.tensor(row, device=on)).cpu().double().mean(dim=0).norm()) for row in tokens]
        frames[policy] = pd.DataFrame({"norm": norms, "length": [len(row) for row in tokens]})
    return frames


def by_length(frame: pd.DataFrame) -> pd.DataFrame:
    """Norms by length in tokens: quartiles of the lengths, and the correlation of norm and length over all texts."""
    edges = np.unique(np.quantile(frame["length"], (0, 0.25, 0.5, 0.75, 1)))
    groups = pd.cut(frame["length"], edges, include_lowest=True) if len(edges) > 1 else frame["length"].astype(str)
    columns = {"shortest": ("length", "min"), "longest": ("length", "max"), "texts": ("length", "size")}
    norms = {"mean norm": ("norm", pd.Series.mean), "max norm": ("norm", "max")}
    rows = frame.groupby(groups, observed=True).agg(**columns, **norms).reset_index(drop=True)
    constant = frame["length"].nunique() < 2 or frame["norm"].nunique() < 2
    correlation = float("nan") if constant else float(np.corrcoef(frame["norm"], frame["length"])[0, 1])
    return rows.assign(correlation=correlation)


def draw(norms_by_policy: dict[str, pd.DataFrame], backbone: str, text: str) -> Figure:
    """Histograms of norms, and norms by length."""
    figure, ((left, right),) = figures.canvas(1, 2, width=10.0)
    for index, (policy, frame) in enumerate(norms_by_policy.items()):
        look = {"s": 8, "alpha": 0.5, "color": figures.COLOURS[index], "linewidths": 0}
        figures.draw_histogram(left, frame["norm"], index, policy, bins=40, linestyle=figures.LINES[index])
        figures.draw_points(right, frame["length"], frame["norm"], **look)
    left.legend()
    right.set_xscale("log")
    right.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.xaxis.set_major_formatter("{x:.0f}")
    right.xaxis.set_minor_formatter(NullFormatter())
    figures.describe(left, f"{backbone}: {text}", "norm of the mean input embedding", "texts")
    figures.describe(right, "norm by length", "tokens of the text (log scale)", "norm")
    return figure

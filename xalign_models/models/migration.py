"""Searches an old model's index with a new model: a map moves the new model's vectors into the old model's space.

The map predicts the old model's vector of a query from the new one's, as in Drift-Adapter (arXiv 2509.23471). It is
fitted on the same texts encoded by both models; one map serves all languages. Dimensions may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xalign_models.alignments.lowrank import LowRank, low_rank
from xalign_models.alignments.residual import Residual
from xalign_models.alignments.shrinkage import ridge_by_leave_one_out
from xalign_models.device import pick_device
from xalign_models.errors import AlignmentError, DataError, ModelError
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.models import fitting
from xalign_models.models.building import build, open_recipe
from xalign_models.models.names import find_spec, slug
from xalign_models.models.saving import dense_layer
from xalign_models.ranking.ranks import normalise
from xalign_models.specs import AlignmentSpec, ModelSpec

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


Layers = tuple[tuple[Float64, Float64], ...]
"""Dense layers W (d, m) and b (m,), with a ReLU between two of them."""


def similarity(x: AnyFloats, y: AnyFloats) -> tuple[Float64, Float64]:
    """The semi-orthogonal map with scale and shift nearest y: ``x W + b`` with W = s U V^T, from the centred X^T Y.

    Args:
        x: Vectors of the new model (n, d).
        y: Vectors of the old model (n, m).

    Returns:
        W (d, m) and b (m,). Where d < m the rows of W are orthogonal, else its columns.
    """
    x, y = x.astype(np.float64), y.astype(np.float64)
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    left, values, right = np.linalg.svd((x - x_mean).T @ (y - y_mean), full_matrices=False)
    rotation = left @ right
    spread = float(np.square((x - x_mean) @ rotation).sum())
    weight: Float64 = rotation * (values.sum() / spread if spread else 1.0)
    return weight, y_mean - x_mean @ weight


def residual_network(x: AnyFloats, y: AnyFloats) -> Layers:
    """:func:`similarity` and, after it, ``y = z + relu(z A + a) B``, as two dense layers.

    The first has the units of the network and also z and -z, which the second subtracts: z = relu(z) - relu(-z).
    Drift-Adapter's network starts from x itself, which makes sense only if both models share one space.
    """
    from xalign_models.alignments.networks import residual

    settings = Residual().get_params()
    del settings["pivot"]
    weight, shift = similarity(x, y)
    inner, bias, outer = residual(x @ weight + shift, y, **settings)
    eye = np.eye(len(shift))
    first = np.concatenate([inner, eye, -eye], axis=1)
    hidden_bias = np.concatenate([bias, np.zeros(2 * len(eye))])
    return (weight @ first, shift @ first + hidden_bias), (np.concatenate([outer, eye, -eye]), np.zeros(len(eye)))


MAPS: dict[str, Callable[[AnyFloats, AnyFloats], Layers]] = {
    "procrustes": lambda x, y: (similarity(x, y),),
    "affine": lambda x, y: (ridge_by_leave_one_out(x, y),),
    "lowrank": lambda x, y: (low_rank(x, y, LowRank.rank),),
    "residual": residual_network,
}
"""Methods that can map between spaces of different dimensions."""


def fit_map(method: str, new: AnyFloats, old: AnyFloats) -> Layers:
    """The map from unit rows (n, d) of the new model to the old model's (n, m), as layers for :func:`apply`.

    Raises:
        AlignmentError: The method is unknown, or there are fewer than two texts.
    """
    check(method)
    if len(new) < 2:
        raise AlignmentError(f"A map needs at least two texts, not {len(new)}.")
    return MAPS[method](normalise(new), normalise(old))


def check(method: str) -> None:
    """Refuse a method that cannot map between two models.

    Raises:
        AlignmentError: The method is not in :data:`MAPS`.
    """
    if method not in MAPS:
        raise AlignmentError(f"{method} cannot map between two models; choose {' or '.join(MAPS)}.")


def apply(layers: Layers, rows: AnyFloats) -> AnyFloats:
    """Map unit rows (n, d): each layer is ``x W + b``, with a ReLU between two layers."""
    for index, (weight, shift) in enumerate(layers):
        rows = (np.maximum(rows, 0) if index else rows) @ weight + shift
    return rows


def texts_of(
    corpus: Sequence[str], languages: Collection[str] | None = None, limit: int | None = None
) -> dict[str, list[str]]:
    """Distinct texts by language of several corpora; ``limit`` applies per language and corpus.

    Raises:
        LanguageError: A language is in no corpus.
        DataError: There are no such texts.
    """
    spec = AlignmentSpec("The map", "centered", (), tuple(corpus), limit, tuple(languages) if languages else None)
    by_language = {code: list(dict.fromkeys(filter(str.strip, side))) for code, (side,) in fitting.fit_texts(spec)}
    if not any(by_language.values()):
        raise DataError(
            f"The text, {', '.join(corpus)}, has no rows in {', '.join(languages or ()) or 'any language'}."
        )
    return by_language


def fit(
    method: str,
    *,
    old: str,
    new: str,
    corpus: Sequence[str],
    languages: Collection[str] | None = None,
    limit: int | None = None,
    device: str | None = None,
) -> SentenceTransformer:
    """The new model with a map into the old model's space, for searches in the old index.

    Args:
        method: One of :data:`MAPS`.
        old: The model of the index, or ``vectors:FILE``, the index itself with its texts.
        new: The model of the queries.
        corpus: Names of corpora that both models encode.
        languages: Canonical codes; None for all languages of the corpora.
        limit: Texts per language and corpus.
        device: cpu, cuda or mps.

    Raises:
        ModelError: A model is aligned or unknown.
        AlignmentError: The method is unknown.
        XAlignError: Weights or texts are missing.
    """
    import torch
    from sentence_transformers.sentence_transformer.modules import Normalize

    check(method)
    device = pick_device(device)
    specs = [find_spec(model) for model in (new, old)]
    if aligned := [spec.name for spec in specs if spec.alignment]:
        raise ModelError(f"{aligned[0]} is aligned; migrate between backbones.")
    texts = texts_of(corpus, languages, limit)
    sides = []
    for recipe in (open_recipe(spec, device) for spec in specs):
        parts = [recipe.encode(side, language, progress=f"fit {language}") for language, side in texts.items()]
        sides.append(np.concatenate(parts))
    layers = fit_map(method, *sides)
    label = slug(f"{method}-to-{specs[1].backbone.name}")
    alignment = AlignmentSpec(label, method, (), tuple(corpus), limit, tuple(sorted(texts)))
    last = len(layers) - 1
    dense = [
        dense_layer(torch.from_numpy(weight), torch.from_numpy(shift), relu=index < last)
        for index, (weight, shift) in enumerate(layers)
    ]
    return build(ModelSpec(specs[0].backbone, alignment), device=device, tail=[Normalize(), *dense, Normalize()])

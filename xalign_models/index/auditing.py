"""Tables of an index's contents, of the mixing of its languages and of scores of unrelated rows; and their page."""

import tomllib
import warnings
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from xalign_models.errors import DataError, plural
from xalign_models.index.base import Index, Rows
from xalign_models.index.filling import languages_of
from xalign_models.linalg.arrays import Float32, Float64, Mask
from xalign_models.page.writing import table, text_of
from xalign_models.ranking.ranks import nearest_others, normalise
from xalign_models.tables.escaping import escape
from xalign_models.thresholds import scale

MOST = 100_000
"""Rows that are compared with each other, drawn at random from a larger index."""
QUERIES, NEIGHBOURS, PER_LANGUAGE, SHOWN = 1000, 10, 300, 60
"""Rows whose nearest neighbours are counted, how many of them, rows of a language that set the thresholds, and the
characters that the page shows of a text."""
SHUFFLES, TAIL = 399, 0.025
"""Draws of chance, and their share at either end that counts as beyond chance."""
FOREIGN = 1.3
"""A cluster with less variance in the largest cluster's directions, as a multiple of chance, is another model's.

Rows of one model share the directions of high variance, whatever their topics and languages: measurements on two
encoders in eight languages gave at least 1.5 times chance for one model, and at most 1.2 times for two models.
"""
CLUSTERS, LEAST, FEWEST, DIRECTIONS = 16, 200, 100, 12
"""Maximum number of clusters, mean number of rows in one, least number in all (clusters of a few rows share directions
by chance), and the dimension over the number of directions."""
POLICY = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
STYLE = (
    "main { padding: 1rem } h1 { overflow-wrap: anywhere } p { max-inline-size: 45rem } td { white-space: nowrap } "
    "thead th { cursor: auto } "
    + " ".join(f".words-{place} :is(th, td):nth-child({place}) {{ text-align: start }}" for place in range(1, 7))
)
"""The page's rules besides those of all pages: columns of words start at the left, and headers cannot be clicked."""
NOTES: dict[str, str] = tomllib.loads(files(__package__).joinpath("notes.toml").read_text(encoding="utf-8"))
"""Explanations of the tables, by a part of their titles."""
Tables = dict[str, list[dict[str, Any]]]
"""Tables by title; the rows of a table have equal keys."""
Drawn = tuple[Rows, Float64]
"""Rows, and a random number in [0, 1) for each; the rows with the smallest numbers form a sample."""


@dataclass(frozen=True)
class Sample:
    """Rows with usable vectors (float32), their canonical languages (n,), and facts about all rows of the index."""

    rows: Rows
    codes: Any
    facts: dict[str, Any]


def gather(index: Index, lang: str | None = None, most: int = MOST, *, written: bool = False) -> Sample:
    """Read all rows once, and keep at most ``most`` that have a usable vector and, if ``written``, a text.

    The seed is fixed, so the same index gives the same sample.

    Raises:
        DataError: There are no usable vectors.
    """
    rng, total, cut = np.random.default_rng(0), 0, 1.0
    kept, norms, hashes, texts = list[Drawn](), [], list[int](), list[tuple[int, int]]()
    facts: dict[str, Any] = dict.fromkeys(("rows", "dimension", "without a vector", "not finite", "zero"), 0)
    for rows in index.rows():
        missing, finite = (test(rows.vectors) for test in (np.isnan, np.isfinite))
        facts["dimension"] = rows.vectors.shape[1]
        facts["rows"] += len(rows.ids)
        facts["without a vector"] += int(missing.all(axis=1).sum())
        facts["not finite"] += int((~finite.all(axis=1) & ~missing.all(axis=1)).sum())
        facts["zero"] += int((~rows.vectors.any(axis=1)).sum())
        good = rows.take(np.flatnonzero(rows.usable))
        norms.append(np.linalg.norm(good.vectors.astype(np.float64), axis=1))
        hashes += (here := [hash(row.tobytes()) for row in good.vectors])
        texts += [(hash(text), row) for text, row in zip(good.texts or (), here, strict=False) if text]
        total += len(good.ids)
        good = good.take(np.flatnonzero([bool(text) for text in good.texts or ()])) if written else good
        kept.append(_below(cut, good, rng.random(len(good.ids))))
        if sum(len(drawn) for _, drawn in kept) > 2 * most:  # rarely, because few rows are below a low cut
            kept, cut = _least(kept, most)
    if not total:
        raise DataError(f"{index.source} has no usable vectors.")
    facts["repeated vectors"] = total - len({*hashes})
    if texts:
        distinct = len({text for text, _ in texts})
        facts["repeated texts"] = len(texts) - distinct
        facts["texts with several vectors"] = len({*texts}) - distinct
    spread = np.quantile(np.concatenate(norms), [0, 0.5, 1])
    facts |= zip(("least norm", "median norm", "greatest norm"), np.round(spread, 4).tolist(), strict=True)
    parts = [rows for rows, _ in _least(kept, most)[0]]
    codes = np.array([code for rows in parts for code in languages_of(rows, lang)])
    names, listed = ([value for rows in parts for value in getattr(rows, side) or ()] for side in ("names", "texts"))
    vectors = np.concatenate([rows.vectors for rows in parts]).astype(np.float32)
    facts |= {"rows compared, drawn at random": len(vectors)} if len(vectors) < total else {}
    return Sample(Rows(names, vectors, listed or None), codes, facts)


def _below(cut: float, rows: Rows, drawn: Float64) -> Drawn:
    places = np.flatnonzero(drawn <= cut)
    return rows.take(places), drawn[places]


def _least(parts: list[Drawn], most: int) -> tuple[list[Drawn], float]:
    """The rows with the ``most`` smallest numbers, or all, and the largest of these numbers."""
    cut = float(np.sort(np.concatenate([drawn for _, drawn in parts]))[:most].max(initial=0))
    return [_below(cut, *part) for part in parts], cut


def contents(sample: Sample, seed: int = 0) -> Tables:
    """Tables of the facts, of languages and hubs among nearest neighbours, of thresholds, and of foreign rows.

    Rows of a language with the same vector count once as neighbours: copies are close whether or not languages mix.
    """
    first: dict[tuple[str, int], int] = {}
    for place, (code, row) in enumerate(zip(sample.codes.tolist(), sample.rows.vectors, strict=True)):
        first.setdefault((code, hash(row.tobytes())), place)
    kept = np.array([*first.values()])
    rows, codes = sample.rows.take(kept), sample.codes[kept]
    unit, rng = normalise(rows.vectors), np.random.default_rng(seed)
    asked = np.sort(rng.choice(len(unit), min(QUERIES, len(unit)), replace=False))
    nearest = nearest_others(unit[asked], unit, asked, NEIGHBOURS)
    languages = []
    spoken, numbers = np.unique(codes, return_inverse=True)
    mixed = dict(zip(spoken.tolist(), within_chance(numbers, asked, nearest, seed), strict=True))
    for code, count in zip(*np.unique(sample.codes, return_counts=True), strict=True):
        alike = int((codes == code).sum())
        near = codes[nearest[codes[asked] == code]]
        own = round(float((near == code).mean()), 4) if near.size else None
        chance = (alike - 1) / (len(codes) - 1) if alike > 1 else None  # a row is no neighbour of itself
        lift = None if own is None or chance is None else round(own / chance, 2)
        languages.append({"language": str(code), "rows": int(count), "share": round(count / len(sample.codes), 4),
                          "same language among the nearest": own, "lift": lift,
                          "chance": "" if lift is None else "within" if mixed[str(code)] else "beyond"})  # fmt: skip
    times = np.bincount(nearest.ravel(), minlength=len(unit))
    hubs = [
        {"id": str(rows.ids[row]), "language": str(codes[row]), "times": int(times[row]),
         "text": _start(str(rows.texts[row] or "")) if rows.texts else ""}
        for row in np.argsort(-times, kind="stable")[:NEIGHBOURS] if times[row] > 1
    ]  # fmt: skip
    strange = np.flatnonzero(foreign(sample.rows.vectors)) if len(unit) >= FEWEST else asked[:0]
    named = ", ".join(str(sample.rows.ids[row]) for row in strange[:5])
    return {
        "Contents": [{"fact": name, "value": value} for name, value in sample.facts.items()],
        f"Languages of the {nearest.shape[1]} nearest of {plural(len(asked), 'row')}": languages,
        "Rows that are nearest most often": hubs,
        "Scores of unrelated rows by languages": thresholds(unit, codes, rng),
        "Rows that look like another model's": [{"rows": len(strange), "first ids": named}][: len(strange)],
    }


def within_chance(languages: Any, asked: Any, nearest: Any, seed: int = 0) -> list[bool]:
    """Whether languages mixed at random would give each language as many, or as few, neighbours in itself.

    Args:
        languages: Numbers (n,) of the rows' languages, from 0.
        asked: Rows (q,) whose neighbours are counted.
        nearest: Neighbours (q, k) of these rows.
        seed: Seed of the draws, each of which shuffles the languages of the rows that are asked, and of the others.
    """
    rng, rest = np.random.default_rng(seed), np.setdiff1d(np.arange(len(languages)), asked)

    def hits(numbers: Any) -> Any:
        alike = (numbers[nearest] == numbers[asked, None]).sum(axis=1)
        return np.bincount(numbers[asked], alike, languages.max() + 1)

    found, shuffled, above, below = hits(languages), languages.copy(), 1, 1  # the index is itself a draw
    for _ in range(SHUFFLES):
        for part in (asked, rest):
            shuffled[part] = rng.permutation(languages[part])
        drawn = hits(shuffled)
        above, below = above + (drawn >= found), below + (drawn <= found)
    within: list[bool] = (np.minimum(above, below) > TAIL * (SHUFFLES + 1)).tolist()
    return within


def foreign(vectors: Float32, seed: int = 0) -> Mask:
    """(n,) whether rows come from another model than most rows, by clusters of the unit vectors (n, d)."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = normalise(vectors)
    count = min(CLUSTERS, max(2, len(rows) // LEAST))
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # from equal rows
        labels = KMeans(count, n_init=1, random_state=seed).fit_predict(rows)
    parts = [part - part.mean(axis=0) for label in range(count) if len(part := rows[labels == label])]
    top = max(1, rows.shape[1] // DIRECTIONS)
    directions = np.linalg.eigh((largest := max(parts, key=len)).T @ largest)[1][:, -top:]
    shares = [np.square(part @ directions).sum() / max(1e-12, float(np.square(part).sum())) for part in parts]
    chosen: Mask = np.array(shares)[labels] * rows.shape[1] / top < FOREIGN
    return chosen if 2 * chosen.sum() <= len(chosen) else ~chosen


def thresholds(unit: Float32, codes: Any, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Median, spread as in ``Thresholds``, and 99th percentile of the scores of each language pair.

    Few rows of an index answer each other, so nearly all scores are between unrelated rows: the 99th percentile is a
    threshold with about 1% false positives, and needs no labels.
    """
    parts = {
        str(code): unit[rng.permutation(np.flatnonzero(codes == code))[:PER_LANGUAGE]] for code in np.unique(codes)
    }
    table = []
    for asked, queries in parts.items():
        for written, documents in parts.items():
            scores = queries @ documents.T
            scores = scores[~np.eye(len(scores), dtype=bool)] if asked == written else scores.ravel()
            if scores.size:
                median, spread = scale(scores)
                shown = {"median": median, "spread": spread, "at 1% false positives": median + spread}
                row = {name: round(value, 4) for name, value in shown.items()}
                table.append({"query": asked, "document": written, **row})
    return table


def page(source: str, tables: Tables) -> str:
    """The tables as an HTML page; all text is escaped, and the page's policy admits only its style."""
    name = escape(source, "html")
    view = "<meta name=viewport content='width=device-width, initial-scale=1'>"
    head = f"<!doctype html><html lang=en><meta charset=utf-8>{view}{POLICY}<title>Audit of {name}</title>"
    parts = [f"{head}<style>{text_of('page.css')}{STYLE}</style><main><h1>Audit of {name}</h1>\n"]
    for title, rows in tables.items():
        note = next((note for part, note in NOTES.items() if part in title), "")
        parts.append(f"<h2>{escape(title, 'html')}</h2>\n<p>{escape(note.format(neighbours=NEIGHBOURS), 'html')}</p>\n")
        if rows:
            words = [f"words-{place}" for place, cell in enumerate(rows[0].values(), 1) if isinstance(cell, str)]
            shown = table([*rows[0]], [[*row.values()] for row in rows], " ".join(["scroller", *words]))
        else:
            shown = "<p>None.</p>"
        parts.append(f"{shown}\n")
    return "".join(parts)


def _start(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"

"""Whether a language's offset to English is the same on every corpus, as methods that remove means assume."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import corpora, figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import display_name
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.models.recipe import DOCUMENTS, QUERIES
from xalign_tasks.analyses.base import LANGUAGES, Study, embed, encoders, slug
from xalign_tasks.lareqa import XQuADR

XQUAD = "xquad"
CORPORA = ("ntrex", "flores", "tatoeba", "lingua", XQUAD, "udhr")
ROWS = 300
HALVES = "two halves of one"
"""Label of the cosine that sampling alone allows: between two halves of a corpus, the mean over corpora."""
Sides = tuple[list[str], list[str]]
"""Sentences of a language, and English ones."""


def analyse(request: Request) -> Findings:
    """Cosines between the offsets of a language on different corpora, by language, prompt and pair of corpora.

    Raises:
        DataError: Fewer than two corpora are available.
        LanguageError: The corpora lack a requested language, or only English was asked for.
        XAlignError: A model is unavailable.
    """
    languages = [code for code in request.languages or LANGUAGES if code != ENGLISH]
    study, texts, have = Study(), {}, set[str]()
    for name in CORPORA:
        try:
            corpus = XQuADR().local_corpus() if name == XQUAD else corpora.load(name)
        except DataError as error:
            study.notes.append(f"{name} was left out. {error}")
            continue
        have |= {*corpus.languages} - {ENGLISH}
        shared = [code for code in languages if code in corpus.languages]
        texts[name] = {code: sides(corpus, code, request.rows or ROWS) for code in shared}
        study.data[name] = corpus.fingerprint([*shared, ENGLISH])
    if len(texts) < 2:
        raise DataError(f"Offsets are compared between corpora, and only {len(texts)} is here. {' '.join(study.notes)}")
    if not have & {*languages} or (request.languages and not have >= {*languages}):
        raise LanguageError(f"The corpora have {', '.join(sorted(have))}; choose among these with --languages.")
    for model, encoder in encoders(request):
        named = (next((name for name in names if name in encoder.prompts), "") for names in (QUERIES, DOCUMENTS))
        for prompt in dict.fromkeys(encoder.prompts.get(name, "") for name in named):
            found = stability(texts, partial(embed, encoder, prompt=prompt))
            frame = study.add("cosines", found, model=model, prompt=prompt)
            label = slug(f"{model} {prompt.strip(': ')}".strip()).replace(" ", "-")
            study.figures[label] = draw(frame, f"{model}, prompt {prompt!r}" if prompt else model)
    return study.findings(
        f"The offset of a language is the mean of its unit vectors less that of English, over up to "
        f"{request.rows or ROWS} rows of a corpus. Equal offsets have a cosine of 1.",
        f"'{HALVES}' is the cosine between the offsets of a corpus' odd and even rows, the mean over corpora: chance "
        "allows no more at half the rows.",
    )


def sides(corpus: Corpus, language: str, rows: int) -> Sides:
    """The first rows of a language and of English, which are translations if the corpus has them."""
    if corpus.kind == "files":
        side, english = (corpus.rows(code).candidates for code in (language, ENGLISH))
    elif corpus.kind == "monolingual":
        side, english = corpus.texts(language), corpus.texts(ENGLISH)
    else:
        side, english = corpus.pair(language)
    return side[:rows], english[:rows]


def stability(texts: Mapping[str, Mapping[str, Sides]], embed: Callable[[list[str], str], AnyFloats]) -> pd.DataFrame:
    """Cosines between the offsets of each language, by pair of corpora, and :data:`HALVES`.

    Args:
        texts: Corpus to language to (its sentences, English sentences).
        embed: Function that gives unit rows (n, d) of sentences in a language.
    """
    rows = []
    for language in dict.fromkeys(code for of_corpus in texts.values() for code in of_corpus):
        pairs = {name: of_corpus[language] for name, of_corpus in texts.items() if language in of_corpus}
        vectors = {name: (embed(side, language), embed(english, ENGLISH)) for name, (side, english) in pairs.items()}
        offsets = {name: offset(*pair) for name, pair in vectors.items()}
        halves = [cosine(offset(x[::2], y[::2]), offset(x[1::2], y[1::2])) for x, y in vectors.values()]
        for a, b in combinations(offsets, 2):
            rows.append({"language": language, "corpora": f"{a}, {b}", "cosine": cosine(offsets[a], offsets[b])})
        rows.append({"language": language, "corpora": HALVES, "cosine": float(np.mean(halves))})
    return pd.DataFrame(rows)


def offset(x: AnyFloats, y: AnyFloats) -> Float64:
    """Mean of rows ``x`` (n, d) minus the mean of rows ``y`` (m, d): (d,)."""
    return np.asarray(x.mean(axis=0, dtype=np.float64) - y.mean(axis=0, dtype=np.float64))


def cosine(a: Float64, b: Float64) -> float:
    """Cosine of two vectors (d,)."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def draw(frame: pd.DataFrame, title: str) -> Figure:
    """Cosines by language and pair of corpora."""
    wide = frame.pivot_table(index="language", columns="corpora", values="cosine", sort=False)
    figure, ((axis,),) = figures.canvas(width=2.5 + 0.62 * wide.shape[1], height=2.2 + 0.34 * len(wide))
    names = [display_name(language) for language in wide.index]
    figures.draw_heat_map(
        axis, wide.to_numpy(), names, list(wide.columns), (0, 1), ".2f", aspect="auto", rotation=40, ha="right"
    )
    axis.set_title(f"Cosine between offsets to English\n{title}", fontsize=11)
    return figure

"""Fits alignments on text, and caches fitted alignments."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from xalign_models import alignments, corpora
from xalign_models.alignments import Alignment
from xalign_models.alignments.base import listed
from xalign_models.alignments.groups import grouped
from xalign_models.corpora import Corpus
from xalign_models.errors import AlignmentError, DataError, LanguageError, MissingDataError, one_line
from xalign_models.linalg.arrays import median_length
from xalign_models.paths import atomic_directory, cache_dir
from xalign_models.specs import AlignmentSpec, digest

logger = logging.getLogger(__name__)

FEW = 10
"""A language with fewer rows causes a warning."""
MANY = 10_000
"""Number of texts that take a CPU about a minute; from this number on, a message announces the work."""

_no_cache = ContextVar("no_cache", default=False)


@contextmanager
def without_cache() -> Iterator[None]:
    """Bypass the cache of fits within the context."""
    token = _no_cache.set(True)
    try:
        yield
    finally:
        _no_cache.reset(token)


Encode = Callable[..., "npt.NDArray[np.float32]"]
"""Encodes texts of one language to raw vectors (n, d): takes the texts, the language and ``progress``, a label. A fit
on several prompts also passes ``prompt``."""


def load_corpora(spec: AlignmentSpec) -> list[Corpus]:
    """The corpora that an alignment is fitted on.

    Raises:
        DataError: A corpus is missing, or it is monolingual and the method is parallel.
    """
    try:
        opened = [corpora.load(name) for name in spec.corpora]
    except MissingDataError as error:
        raise MissingDataError(f"{error} The corpora gettext and kolibri come from the package index.") from None
    if not opened:
        raise DataError(f"{spec.label} has no fit text; name a corpus: {', '.join(corpora.CORPORA)}.")
    if alignments.find_method(spec.method).parallel and any(corpus.kind == "monolingual" for corpus in opened):
        raise DataError(
            f"{spec.method} needs translations; {spec.corpora[0]!r} has none. Parallel corpora: ntrex, flores, "
            "tatoeba_pairs, gettext, own:DIR."
        )
    return opened


def fit_languages(spec: AlignmentSpec, opened: Sequence[Corpus]) -> tuple[str, ...]:
    """The languages of the spec, by default all languages of the corpora.

    Raises:
        LanguageError: A language of the spec is in none of the corpora.
    """
    have = {language for corpus in opened for language in _languages(corpus)}
    if alignments.find_method(spec.method).parallel:
        have.add(pivot_of(spec))  # the pivot is on the other side of every pair
    languages = set(spec.languages or have)
    if missing := sorted(languages - have):
        raise LanguageError(
            f"The fit text, {', '.join(spec.corpora)}, has no {', '.join(missing)}; it has {', '.join(sorted(have))}."
        )
    return tuple(sorted(languages))


def has_pivot(spec: AlignmentSpec) -> bool:
    """Whether the text has the pivot. Raises DataError if text is missing."""
    return any(pivot_of(spec) in _languages(corpus) for corpus in load_corpora(spec))


def fingerprint(spec: AlignmentSpec) -> str:
    """Sha256 (hex) of the text and settings of an alignment's fit, without the backbone."""
    opened = load_corpora(spec)
    languages = fit_languages(spec, opened)
    english = corpora.ENGLISH in languages and not alignments.find_method(spec.method).parallel
    texts = [
        corpus.fingerprint(None if english and corpus.kind == "pairs" else [*languages, pivot_of(spec)])
        for corpus in opened
    ]
    made_by = alignments.version_of(spec.method)
    weights = ["equal corpora"] if len(texts) > 1 and not alignments.find_method(spec.method).parallel else []
    return digest(made_by, spec.method, spec.params, spec.limit, languages, texts, *weights)


def fit(spec: AlignmentSpec, encode: Encode, prompts: Sequence[str] = ()) -> Alignment:
    """Encode the fit text and fit; see :func:`fit_vectors` for the prompts.

    Raises:
        DataError: Fit text is missing or not aligned.
        AlignmentError: The method cannot be fitted on it.
    """
    alignment = alignments.make(spec.method, **dict(spec.params))
    data = fit_vectors(spec, encode, prompts)
    start = perf_counter()
    alignment.fit(data)
    alignment.seconds_ = perf_counter() - start
    sides = [side[:100] for part in data.values() for side in (part if isinstance(part, tuple) else (part,))]
    alignment.length_ = median_length(np.concatenate(sides))
    return alignment


def fit_texts(spec: AlignmentSpec) -> Iterator[tuple[str, list[list[str]]]]:
    """Fit text by language: sentences of the language and, for a parallel method, of the pivot.

    For other methods, the rows of shorter corpora are repeated up to the length of the longest, so that each corpus has
    the same weight. Raises DataError if text is missing or not aligned.
    """
    opened, parallel, pivot = load_corpora(spec), alignments.find_method(spec.method).parallel, pivot_of(spec)
    for language in fit_languages(spec, opened):
        if parallel and language == pivot:
            continue
        have = [corpus for corpus in opened if language in _languages(corpus)]
        rows = [corpus.pair(language, pivot) if parallel else (corpus.texts(language),) for corpus in have]
        sides = [[side[: spec.limit] for side in part] for part in zip(*rows, strict=True)]
        if not parallel:  # a language's offset in a short corpus counts as much as in a long one
            most = max(map(len, sides[0]))
            sides = [[list(islice(cycle(side), most)) for side in part] for part in sides]
        yield language, [[text for side in part for text in side] for part in sides]


def fit_vectors(spec: AlignmentSpec, encode: Encode, prompts: Sequence[str] = ()) -> dict[str, Any]:
    """Fit data: raw vectors (n, d) by language or, for a parallel method, pairs (language, pivot).

    With ``prompts``, for joint methods, the keys are :func:`~xalign_models.alignments.groups.group`.

    Raises:
        DataError: Fit text is missing or not aligned.
    """
    if prompts:
        return grouped({prompt: fit_vectors(spec, partial(encode, prompt=prompt)) for prompt in prompts})
    texts, data = dict(fit_texts(spec)), dict[str, Any]()
    if (count := len({text for sides in texts.values() for side in sides for text in side})) > MANY:
        fewer = "" if spec.limit else " Limit the rows per corpus and language with --limit 1000."
        said = "%s is fitted on %s texts in %d languages. Texts that are not in the store are encoded first.%s"
        logger.warning(said, spec.label, f"{count:,}", len(texts), fewer)
    if few := {language: len(sides[0]) for language, sides in texts.items() if len(sides[0]) < FEW}:
        logger.warning("%s is fitted on few rows (%s), whose means are mostly chance.", spec.label, listed(few))
    for language, sides in texts.items():
        codes = (language, pivot_of(spec))[: len(sides)]
        progress = f"fit {spec.label} {language}"
        vectors = [encode(side, code, progress=progress) for side, code in zip(sides, codes, strict=True)]
        data[language] = tuple(vectors) if len(vectors) > 1 else vectors[0]
    if not data:
        raise DataError(f"{spec.label} has text in the pivot only; parallel methods need at least one other language.")
    return data


def _languages(corpus: Corpus) -> set[str]:
    return {*corpus.languages, *([corpora.ENGLISH] if corpus.kind == "pairs" else [])}


def pivot_of(spec: AlignmentSpec) -> str:
    """The language that a parallel method maps onto; it can be any language of row-parallel text."""
    return str(dict(spec.params).get("pivot", corpora.ENGLISH))


def cached(spec: AlignmentSpec, backbone: str) -> Alignment | None:
    """The cached fit of the same text, backbone and prompt or prompts, or None."""
    if _no_cache.get():
        return None
    with suppress(AlignmentError):
        return alignments.load(_directory(spec, backbone))
    return None


def _directory(spec: AlignmentSpec, backbone: str) -> Path:
    return cache_dir() / "alignments" / digest(backbone, fingerprint(spec))[:32]


def fit_cached(spec: AlignmentSpec, backbone: str, encode: Encode, prompts: Sequence[str] = ()) -> Alignment:
    """The cached fit of the same text, backbone and prompt or prompts, or else :func:`fit`."""
    if (earlier := cached(spec, backbone)) is not None:
        return earlier
    if _no_cache.get():
        return fit(spec, encode, prompts)
    directory = _directory(spec, backbone)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        turn = FileLock(directory.parent / f".{directory.name}.lock").acquire()
    except OSError as error:
        logger.warning("The fit is not cached: %s.", one_line(error))
        return fit(spec, encode, prompts)
    with turn:
        try:
            return alignments.load(directory)
        except AlignmentError:
            logger.debug("No usable fit of %s in %s.", spec.label, directory)
        alignment = fit(spec, encode, prompts)
        with atomic_directory(directory) as temporary:
            alignment.save(temporary)
    return alignment

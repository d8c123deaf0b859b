"""Corpora by name."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from xalign_models.claims import named
from xalign_models.corpora.base import PARTS, Corpus, from_files, read_lines, refuse_part
from xalign_models.corpora.checks import check_rows
from xalign_models.corpora.embedded import gettext, kolibri
from xalign_models.corpora.own_text import own, own_paths, split_part
from xalign_models.corpora.publishers import PUBLISHERS, Publisher, from_hub
from xalign_models.errors import DataError, LanguageError, MissingDataError
from xalign_models.identification import UNDETERMINED
from xalign_models.languages import canonical
from xalign_models.paths import data_dir, expanded
from xalign_models.plugins import CORPORA, register


def load(name: str, path: Path | None = None, *, local: bool = False) -> Corpus:
    """A corpus by name.

    Args:
        name: A registered name, e.g. ``ntrex``, or a name set by ``--data``. ``gettext:fit`` and ``gettext:test`` are
            halves of the embedded corpus ``gettext``. ``own:DIR`` is short for ``own`` with a path; ``own:fit:DIR`` and
            ``own:test:DIR`` are its halves.
        path: Location of the corpus; by default its folder under ``$XALIGN_DATA``.
        local: Whether to leave the hub out.

    Raises:
        DataError: Unknown name, or missing files; the message names the variable and the publisher.
        ModelError: Only a file names the text's place.

    Examples:
        >>> from xalign_models import corpora
        >>> corpus = corpora.load("own:parallel")  # a folder with deu.txt, eng.txt and fra.txt
        >>> corpus.languages
        ('deu-Latn', 'eng-Latn', 'fra-Latn')
        >>> german, english = corpus.pair("deu-Latn")
        >>> len(german) == len(english)
        True
    """
    kind, _, part = name.partition(":")
    if part not in {"", *PARTS}:  # whoever names a text names its halves
        named(type(name)(f"{kind}:{split_part(part)[1] if kind == 'own' else part}"))
    parts = ("",) if kind == "own" else ("", *PARTS)  # `own:test` is a folder called test
    if path is None and part in parts and kind in (places := own_paths()):
        half, location = places[kind]
        return own(location, part or half, name=kind)
    if kind not in CORPORA and expanded(name).exists():
        raise DataError(f"Unknown corpus {name!r}; own:{name} is your own text in this place.")
    corpus: Corpus = CORPORA[kind](part, path=path, local=local)
    return corpus


def texts_of(name: str, languages: Sequence[str] | None = None, limit: int | None = None) -> dict[str, list[str]]:
    """The distinct texts of a file or corpus, by language.

    Args:
        name: A corpus, or a file with one text per line, whose name may tell the language (``deu.txt``).
        languages: Canonical codes of a corpus; None for all.
        limit: Maximum number of texts per language, from the top.

    Raises:
        DataError: The file or corpus does not exist or has no texts.
        LanguageError: The corpus does not have a language.
    """
    path = expanded(name)
    if path.is_file():
        try:
            language = canonical(path.stem)
        except LanguageError:
            language = UNDETERMINED
        sides = {language: read_lines(path)}
        check_rows(name, sides[language])
    else:
        corpus = load(name)
        sides = {language: corpus.texts(language) for language in languages or corpus.languages}
    texts = {
        language: list(dict.fromkeys(text for text in side if text.strip()))[:limit] for language, side in sides.items()
    }
    if not any(texts.values()):
        raise DataError(f"{name} has no texts.")
    return {language: side for language, side in texts.items() if side}


def _published(name: str, publisher: Publisher, part: str, *, path: Path | None, local: bool) -> Corpus:
    refuse_part(name, part)
    base = data_dir()
    root = path or (base / publisher.folder if base else None)
    files = publisher.layout(root) if root is not None and root.is_dir() else {}
    if files:
        return from_files(name, publisher.kind, publisher.trains, files, publisher.reader)
    missing = (
        f"Corpus {name!r} is missing: set XALIGN_DATA to a folder that has {publisher.folder}/ in the layout of "
        f"{publisher.where}"
    )
    if local or path is not None or publisher.hub is None:
        raise MissingDataError(f"{missing}.")
    return from_hub(name, publisher, missing)


def trained_tasks(name: str) -> tuple[str, ...]:
    """Mteb's names of the data sets and tasks that contain a corpus's text; no file is opened.

    Own text names none, as the tasks on it compare its rows with those that an alignment was fitted on.

    Raises:
        DataError: Unknown name.
    """
    kind, _, part = name.partition(":")
    if kind != "own" and kind in own_paths():
        return ()
    trains: tuple[str, ...] = CORPORA.facts(kind)["trains"]
    return () if (kind, part) == ("gettext", "fit") else trains


for _name, _publisher in PUBLISHERS.items():
    register.corpus(_name, kind=_publisher.kind, trains=_publisher.trains, description=_publisher.where)(
        partial(_published, _name, _publisher)
    )


register.corpus(
    "gettext", trains=("GettextPrecision",), description="Django's translated interface strings, from the package index"
)(gettext)
register.corpus(
    "kolibri", kind="pairs", description="Kolibri's interface sentences, to fit on; from the package index"
)(kolibri)


@register.corpus("own", description="your own text: own:DIR, or --data own=DIR")
def _own(part: str, *, path: Path | None, local: bool) -> Corpus:
    if not part and path is None:
        raise DataError("Corpus 'own' needs a directory or file: use --data own=DIR, or own:DIR for text to fit on.")
    half, location = split_part(part) if path is None else (part, path)
    return own(location, half)

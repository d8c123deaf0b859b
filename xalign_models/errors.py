"""The exceptions of xalign; messages say what was wrong, what is allowed and what to do.

Examples:
    >>> from xalign_models import languages
    >>> from xalign_models.errors import XAlignError
    >>> try:
    ...     languages.canonical("germn")
    ... except XAlignError as error:
    ...     print(type(error).__name__)
    LanguageError
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager


class XAlignError(Exception):
    """Base of the errors that a user can cause and correct."""


_PLAIN = (
    (r"Value error, ", ""),
    (r"Input should be greater than or equal to (\S+)", r"at least \1 is needed"),
    (r"Input should be less than or equal to (\S+)", r"at most \1 is possible"),
    (r"Input should be a valid integer.*", "a whole number is needed"),
    (r"Input should be a valid number.*", "a number is needed"),
    (r"Input should be ", "it must be "),
    (r"Field required", "it is missing"),
    (r"Extra inputs are not permitted", "there is no such field"),
)
"""Phrases of pydantic, which typer quotes too, and ours for them."""


def plain(text: str) -> str:
    """A message of pydantic in plainer words."""
    for theirs, ours in _PLAIN:
        text = re.sub(theirs, ours, text)
    return text


def plural(count: int, noun: str) -> str:
    """``1 text``, ``2 texts``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def one_line(error: BaseException) -> str:
    """An error's message on one line; the type precedes it unless the error is ours, an OSError or a ValueError.

    An error of the system that knows its file reads "FILE: reason".
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
        text = f"{error.filename}: {error.strerror}"
    line = " ".join(text.split())[:2000]
    if line and isinstance(error, XAlignError | OSError | ValueError):
        return line
    return f"{type(error).__name__}: {line}".rstrip(": ")


class LanguageError(XAlignError):
    """A language code is unknown, ambiguous, or not among the fitted languages."""


class DataError(XAlignError):
    """Text is missing, malformed, or not parallel."""


class MissingDataError(DataError):
    """A published corpus is neither in ``XALIGN_DATA`` nor on the hub."""


class AssetError(XAlignError):
    """Weights or corpora are unavailable or damaged."""


class LicenceError(AssetError):
    """An asset's terms must be accepted before it is installed."""


class AlignmentError(XAlignError):
    """An alignment cannot be fitted or applied."""


class ModelError(XAlignError):
    """A model name, directory or output is unusable."""


@contextmanager
def without_panic() -> Iterator[None]:
    """Turn a panic of a Rust library, which is not an Exception and would end a whole run, into an error.

    Raises:
        ModelError: Instead of the panic.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"A library failed: {' '.join(str(error).split())[:200]}.") from error


class Terminated(SystemExit):
    """The end of a process that was told to end, by SIGTERM."""


@contextmanager
def without_exit() -> Iterator[None]:
    """Turn ``sys.exit`` in a plug-in, model or task, which is not an Exception and would end a command, into an error.

    Raises:
        PluginError: Instead of the exit.
    """
    try:
        yield
    except Terminated:
        raise
    except SystemExit as leaving:
        raise PluginError(f"The code called sys.exit({leaving.code!r}). Let it raise an error instead.") from leaving


class NeedsPluginError(ModelError, AlignmentError):
    """A model or a fit needs a plug-in that is not loaded; it is not damaged."""


class ResultsError(XAlignError):
    """Results are missing, unreadable, or cannot be compared."""


class FileError(XAlignError):
    """A file is missing, damaged or too large."""


class PluginError(XAlignError):
    """A plug-in cannot be loaded, or a value cannot be registered."""

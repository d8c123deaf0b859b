"""Text by language: the corpora for fitting alignments and for tasks.

A corpus is read from ``$XALIGN_DATA`` in its publisher's layout, else from the Hugging Face hub, else from the package
assets. Every corpus provides one of:

- ``texts(language)``: a list of sentences; in a *parallel* corpus row i means the same in every language;
- ``pair(language)``: (sentences, their English translations), row by row, each language with its own English side.
"""

from xalign_models.corpora.base import ENGLISH, Corpus, read_lines
from xalign_models.corpora.embedded import GETTEXT_LANGUAGES, gettext
from xalign_models.corpora.own_text import own
from xalign_models.corpora.registry import load, trained_tasks
from xalign_models.files import file_digest
from xalign_models.plugins import CORPORA

__all__ = [
    "CORPORA",
    "ENGLISH",
    "GETTEXT_LANGUAGES",
    "Corpus",
    "file_digest",
    "gettext",
    "load",
    "own",
    "read_lines",
    "trained_tasks",
]

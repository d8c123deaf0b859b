"""A corpus of your own, in one file: months and weekdays in four languages, row by row the same.

    xalign corpora --plugin calendar_corpus.py
    xalign fit centered --plugin calendar_corpus.py --backbone all-MiniLM-L6-v2 --corpus calendar -o centred

Files on your disk need no plug-in: use ``--corpus own:DIR``. A plug-in is for text that has to be read in another way.
xalign calls the function when it needs the text, and not to list corpora. ``trains`` names the tasks with the same
text; there, a dagger marks the models that were fitted on it.
"""

import hashlib
import json
from pathlib import Path

from xalign_models import register
from xalign_models.corpora import Corpus
from xalign_models.corpora.base import from_columns
from xalign_models.errors import DataError

ROWS = {
    "eng-Latn": "January February March April May June July August September October November December "
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "deu-Latn": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember "
    "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "fra-Latn": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre "
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "spa-Latn": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre "
    "lunes martes miércoles jueves viernes sábado domingo",
}


@register.corpus("calendar", kind="parallel", trains=("Calendar",), description="months and weekdays, an example")
def calendar(part: str = "", *, path: Path | None = None, local: bool = False) -> Corpus:
    """All rows, or ``calendar:months``.

    Args:
        part: The text after the colon.
        path: Folder of a corpus that is stored on disk; not used here.
        local: Whether downloads are forbidden; this corpus needs none.

    Raises:
        DataError: The part is unknown.
    """
    if part not in {"", "months"}:
        raise DataError(f"Unknown part {part!r} of the corpus 'calendar'; its only part is `months`.")
    columns = {language: words.split()[: 12 if part else None] for language, words in ROWS.items()}
    identity = hashlib.sha256(json.dumps(columns, sort_keys=True).encode()).hexdigest()
    return from_columns("calendar", ("Calendar",), columns, identity)

"""NTREX-128: 1,997 sentences of news, 122 languages (regional variants count once), every ordered pair."""

from xalign_tasks.facts import CODES
from xalign_tasks.precision import PrecisionTask, precision_metadata

LANGUAGES = CODES["ntrex"]


class NTREXPrecision(PrecisionTask):
    """P@k on NTREX-128."""

    corpus_name = "ntrex"
    metadata = precision_metadata("NTREXPrecision", LANGUAGES)

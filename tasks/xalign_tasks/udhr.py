"""The Universal Declaration of Human Rights: 47 paragraphs, 78 languages, every ordered pair."""

from xalign_tasks.facts import CODES
from xalign_tasks.precision import PrecisionTask, precision_metadata

LANGUAGES = CODES["udhr"]


class UDHRPrecision(PrecisionTask):
    """P@k on the paragraphs of the articles: few rows, but languages that other sets lack."""

    corpus_name = "udhr"
    metadata = precision_metadata("UDHRPrecision", LANGUAGES)

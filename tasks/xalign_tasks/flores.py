"""FLORES-200 devtest: 1,012 sentences, 204 languages, every ordered pair."""

from xalign_models.languages import FLORES_200
from xalign_tasks.precision import PrecisionTask, precision_metadata

LANGUAGES = tuple(sorted(set(FLORES_200) - {"nqo-Nkoo"}))  # added after devtest was published


class FloresPrecision(PrecisionTask):
    """P@k on the devtest of FLORES-200."""

    corpus_name = "flores"
    metadata = precision_metadata("FloresPrecision", LANGUAGES)

"""Precision@k over every ordered pair of languages of a parallel corpus: FLORES-200, NTREX-128, UDHR and gettext."""

from xalign_models import assets
from xalign_models.corpora import GETTEXT_LANGUAGES, Corpus, load
from xalign_models.errors import DataError
from xalign_models.languages import FLORES_200
from xalign_tasks.facts import CODES
from xalign_tasks.precision import PrecisionTask, precision_metadata

FLORES_LANGUAGES = tuple(sorted(set(FLORES_200) - {"nqo-Nkoo"}))  # added after devtest was published


class FloresPrecision(PrecisionTask):
    """P@k on the devtest of FLORES-200, 1,012 sentences."""

    corpus_name = "flores"
    metadata = precision_metadata("FloresPrecision", FLORES_LANGUAGES)


class NTREXPrecision(PrecisionTask):
    """P@k on NTREX-128, 1,997 sentences of news; regional variants of a language count once."""

    corpus_name = "ntrex"
    metadata = precision_metadata("NTREXPrecision", CODES["ntrex"])


class UDHRPrecision(PrecisionTask):
    """P@k on the 47 paragraphs of the articles of UDHR: few rows, but languages that other sets lack."""

    corpus_name = "udhr"
    metadata = precision_metadata("UDHRPrecision", CODES["udhr"])


class GettextPrecision(PrecisionTask):
    """P@k on the test half of the embedded corpus; models named ``...__gettext`` are fitted on the other half."""

    corpus_name = "gettext:test"
    narrows = False
    metadata = precision_metadata("GettextPrecision", GETTEXT_LANGUAGES)

    def local_corpus(self) -> Corpus:
        """The corpus if it is installed."""
        if assets.where("gettext") is None:
            raise DataError("The gettext corpus is not installed yet.")
        self._corpus = load(self.corpus_name)
        return self._corpus

"""The embedded corpus as a task: translated interface strings, available from the package index alone."""

from xalign_models import assets
from xalign_models.corpora import GETTEXT_LANGUAGES, Corpus, load
from xalign_models.errors import DataError
from xalign_tasks.precision import PrecisionTask, precision_metadata


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

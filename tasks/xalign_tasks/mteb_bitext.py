"""mteb's bitext mining on the publisher's text, so that our scores compare with published ones.

Name, subsets and main score (F1) are mteb's. A language is encoded once instead of once per pair, and the model gets
the language, so that aligned models can be scored.
"""

import mteb

from xalign_models.languages import canonical
from xalign_tasks.ntrex import LANGUAGES
from xalign_tasks.precision import PrecisionTask

_BY_LANGUAGE = {language[:3]: language for language in LANGUAGES}


class NTREXBitextMining(PrecisionTask):
    """F1 on NTREX-128, with P@k and the neighbourhood measures."""

    corpus_name = "ntrex"
    metadata = mteb.get_task("NTREXBitextMining").metadata

    def language(self, code: str) -> str:
        """NTREX's language; for some, mteb names a script other than the text's, e.g. ``mon_Mong``."""
        language = canonical(code)
        return language if language in LANGUAGES else _BY_LANGUAGE[language[:3]]

"""mteb's bitext mining on the publisher's text, so that our scores compare with published ones.

Name, subsets and main score (F1) are mteb's. A language is encoded once, and the model gets the language.
"""

import mteb

from xalign_models.languages import canonical
from xalign_tasks.facts import CODES
from xalign_tasks.precision import PrecisionTask

_BY_LANGUAGE = {language[:3]: language for language in CODES["ntrex"]}


class NTREXBitextMining(PrecisionTask):
    """F1 on NTREX-128, with P@k and the neighbourhood measures."""

    corpus_name = "ntrex"
    metadata = mteb.get_task("NTREXBitextMining").metadata

    def language(self, code: str) -> str:
        """NTREX's language; mteb sometimes names another script than the text's, e.g. ``mon_Mong``."""
        language = canonical(code)
        return language if language in CODES["ntrex"] else _BY_LANGUAGE[language[:3]]

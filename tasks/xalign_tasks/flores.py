"""FLORES-200 devtest: 1,012 sentences, 204 languages, every ordered pair."""

from __future__ import annotations

from xalign_models.languages import FLORES_200
from xalign_tasks.precision import PrecisionTask, precision_metadata


class FloresPrecision(PrecisionTask):
    """P@k on the devtest of FLORES-200."""

    corpus_name = "flores"
    metadata = precision_metadata(
        "FloresPrecision",
        set(FLORES_200) - {"nqo-Nkoo"},  # added after devtest was published
        dataset={"path": "mteb/FloresBitextMining", "revision": "2144d16cc15edd22d4a9237d12bff5f31f5c07fc"},
        eval_splits=["devtest"],
        reference="https://github.com/facebookresearch/flores",
        license="cc-by-sa-4.0",
        adapted_from=["FloresBitextMining"],
    )

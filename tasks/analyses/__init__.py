"""Analyses: what tables and figures show that one score cannot. One analysis, one file."""

from tasks.analyses import (
    atlas,
    deviation,
    isomorphism,
    linear_mapping,
    lipschitz,
    lsar_families,
    lsar_layers,
    lsar_ranks,
    lsar_syntax,
    one_target,
    reasoning,
    rkhs,
    scatter,
    selection,
)
from tasks.analyses.base import Analysis, Findings, Request

_ALL: tuple[Analysis, ...] = (  # each: Analysis("name", "What it shows.", module.analyse)
    Analysis("isomorphism", "P@k of every pair before and after a rotation, by `xalign run`.", isomorphism.analyse),
    Analysis("one-target", "LAReQA's limit-to-one-target heat maps of XQuAD-R, by `xalign run`.", one_target.analyse),
    Analysis(
        "linear-mapping", "What linear maps from and to English gain, and their orthogonality.", linear_mapping.analyse
    ),
    Analysis("lsar-families", "What LSAR removes, by language family: histograms.", lsar_families.analyse),
    Analysis("lsar-syntax", "Whether what LSAR removes is syntax: correlation with URIEL.", lsar_syntax.analyse),
    Analysis(
        "lsar-ranks", "Tatoeba accuracy by the number of directions that LSAR or LIR removes.", lsar_ranks.analyse
    ),
    Analysis("lsar-layers", "Tatoeba accuracy by layer, before and after each alignment.", lsar_layers.analyse),
    Analysis("rkhs", "Norms of mean input embeddings: the surrogate of the constant C of LiRA's bound.", rkhs.analyse),
    Analysis("lipschitz", "How far an embedding moves when its text is edited a little.", lipschitz.analyse),
    Analysis("deviation", "LiRA's similarity, loss, errors and bounds over the epochs of stage 1.", deviation.analyse),
    Analysis("selection", "Whether LiRA's actor picks a reference among corruptions of it.", selection.analyse),
    Analysis("mgsm", "Accuracy of models that write on MGSM.", reasoning.analyse_mgsm),
    Analysis("x-csqa", "Accuracy of models that write on X-CSQA.", reasoning.analyse_xcsqa),
    Analysis("atlas", "How even the languages of published models are, by mteb's public results.", atlas.analyse),
    Analysis("scatter", "A multilingual pool in the plane (PCA, t-SNE), before and after.", scatter.analyse),
)
ANALYSES: dict[str, Analysis] = {one.name: one for one in _ALL}
"""By name, in the order in which they are listed."""

__all__ = ["ANALYSES", "Analysis", "Findings", "Request"]

"""Post-hoc alignments: maps by language, fitted on embeddings; torch modules are in ``module`` and ``networks``."""

from xalign_models.alignments.affine import AffineMap
from xalign_models.alignments.base import Alignment
from xalign_models.alignments.centered import Centered
from xalign_models.alignments.langsae import LangSAE
from xalign_models.alignments.leace import LEACE
from xalign_models.alignments.lir import LIR
from xalign_models.alignments.lowrank import LowRank
from xalign_models.alignments.lsar import LSAR
from xalign_models.alignments.minivec2vec import MiniVec2Vec
from xalign_models.alignments.orthogonality import dilation, orthogonality
from xalign_models.alignments.procrustes import Procrustes
from xalign_models.alignments.registry import METHODS, find_method, load, make, version_of
from xalign_models.alignments.residual import Residual
from xalign_models.alignments.seedless import Seedless
from xalign_models.alignments.shift import Shift
from xalign_models.alignments.whitened import Whitened

__all__ = [
    "LEACE",
    "LIR",
    "LSAR",
    "METHODS",
    "AffineMap",
    "Alignment",
    "Centered",
    "LangSAE",
    "LowRank",
    "MiniVec2Vec",
    "Procrustes",
    "Residual",
    "Seedless",
    "Shift",
    "Whitened",
    "dilation",
    "find_method",
    "load",
    "make",
    "orthogonality",
    "version_of",
]

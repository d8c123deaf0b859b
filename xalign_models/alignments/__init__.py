"""Post-hoc alignments: affine maps by language, fitted on embeddings; their torch module is in ``module``."""

from xalign_models.alignments.affine import AffineMap
from xalign_models.alignments.base import Alignment
from xalign_models.alignments.centered import Centered
from xalign_models.alignments.lir import LIR
from xalign_models.alignments.lsar import LSAR
from xalign_models.alignments.orthogonality import dilation, orthogonality
from xalign_models.alignments.procrustes import Procrustes
from xalign_models.alignments.registry import METHODS, find_method, load, make, version_of
from xalign_models.alignments.seedless import Seedless
from xalign_models.alignments.whitened import Whitened

__all__ = [
    "LIR",
    "LSAR",
    "METHODS",
    "AffineMap",
    "Alignment",
    "Centered",
    "Procrustes",
    "Seedless",
    "Whitened",
    "dilation",
    "find_method",
    "load",
    "make",
    "orthogonality",
    "version_of",
]

"""A model's spec with its backbone, its fit and its modules, each opened or computed once, when first needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xalign_models import alignments
from xalign_models.backbones import loading
from xalign_models.backbones.loading import open_backbone
from xalign_models.models import fitting
from xalign_models.specs import AlignmentSpec, ModelSpec, Vectors, digest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import nn

    from xalign_models.alignments import Alignment
    from xalign_models.backbones.loading import Backbone
    from xalign_models.backbones.raw import RawEncoder
    from xalign_models.backbones.reduced import Reduced

CALIBRATION = AlignmentSpec("int8", "centered", corpora=("gettext:fit",), limit=100)
"""Text for the ranges of int8 vectors without an alignment: 100 rows of each language, from the package index."""


class Recipe:
    """The parts of a model.

    Args:
        spec: The model.
        raw: Encoder of its raw vectors; required by the parts that need vectors.
        backbone: Its backbone, if already open.
    """

    def __init__(self, spec: ModelSpec, raw: RawEncoder | None = None, backbone: Backbone | None = None) -> None:
        self.spec = spec
        self.backbone = backbone or open_backbone(spec.backbone)
        self._raw = raw

    @property
    def raw(self) -> RawEncoder:
        """The encoder of raw vectors."""
        assert self._raw is not None
        return self._raw

    @cached_property
    def alignment(self) -> AlignmentSpec | None:
        """The alignment's spec; if prompts are by language, restricted to languages with a prompt.

        Raises:
            DataError: Fit text is missing.
        """
        return self._prompted(self.spec.alignment) if self.spec.alignment else None

    @cached_property
    def calibration(self) -> AlignmentSpec:
        """The text that sets the ranges of int8 vectors: the alignment's fit text, else :data:`CALIBRATION`."""
        return self.alignment or self._prompted(CALIBRATION)

    def _prompted(self, alignment: AlignmentSpec) -> AlignmentSpec:
        languages = loading.prompt_languages(self.backbone.prompts)
        if languages is None:
            return alignment
        have = fitting.fit_languages(alignment, fitting.load_corpora(alignment))
        return dataclasses.replace(alignment, languages=tuple(code for code in have if code in languages))

    @cached_property
    def revision(self) -> str:
        """40 hex digits of everything that determines the model's vectors.

        Raises:
            XAlignError: Weights or fit text are missing.
        """
        spec = self.spec.backbone
        parts: list[Any] = [self.backbone.fingerprint, self.backbone.prompts]
        if spec.whole != spec:
            parts.append([spec.truncate_dim, spec.vectors])
        if spec.vectors is Vectors.INT8 and not self.spec.alignment:
            parts.append(fitting.fingerprint(self.calibration))
        if self.alignment:
            parts.append(fitting.fingerprint(self.alignment))
        return digest(*parts)[:40]

    @cached_property
    def reduced(self) -> tuple[Reduced, ...]:
        """The module that truncates or quantises raw vectors, if any; int8 encodes the fit text to find its ranges.

        Raises:
            XAlignError: Weights or fit text are missing.
        """
        spec = self.spec.backbone
        if spec.whole == spec:
            return ()
        from xalign_models.backbones.reduced import Reduced, ranges_of

        ranges = None
        if spec.vectors is Vectors.INT8:
            whole = Recipe(ModelSpec(spec.whole), self.raw)
            vectors = fitting.fit_vectors(self.calibration, whole.encode).values()
            sides = (side for part in vectors for side in (part if isinstance(part, tuple) else (part,)))
            ranges = ranges_of(sides, spec.truncate_dim)
        return (Reduced(spec.truncate_dim, spec.vectors, ranges),)

    @cached_property
    def encoding(self) -> str:
        """Fingerprint of the vectors of :meth:`encode`, prompts included."""
        prompts = self.backbone.prompts
        chosen = [prompts] if loading.prompt_languages(prompts) else [prompts.get("default", "")]
        return digest(self.raw.namespace, *chosen, *(module.get_config_dict() for module in self.reduced))

    def encode(self, texts: Sequence[str], language: str, *, progress: str | None = None) -> npt.NDArray[np.float32]:
        """Vectors (n, d) of texts of one language, as an alignment is fitted on them."""
        import torch

        vectors = self.raw.encode(texts, loading.prompt_in(self.backbone.prompts, language), progress)
        for module in self.reduced:
            vectors = module.reduce(torch.from_numpy(vectors)).numpy()
        return vectors

    def fit_vectors(self) -> dict[str, Any]:
        """The vectors that the alignment is fitted on; see :func:`~xalign_models.models.fitting.fit_vectors`."""
        assert self.alignment is not None
        return fitting.fit_vectors(self.alignment, self.encode)

    @cached_property
    def fitted(self) -> Alignment | None:
        """The alignment, fitted now or taken from the cache of fits; None for an unaligned backbone."""
        return fitting.fit_cached(self.alignment, self.encoding, self.encode) if self.alignment else None

    @cached_property
    def on_demand(self) -> AlignmentSpec | None:
        """The alignment's spec with all its languages, if each language can be fitted when it is first used."""
        if self.alignment is None or not alignments.find_method(self.alignment.method).by_language:
            return None
        languages = fitting.fit_languages(self.alignment, fitting.load_corpora(self.alignment))
        return dataclasses.replace(self.alignment, languages=languages)

    @cached_property
    def languages(self) -> Sequence[str] | None:
        """The languages that an encoder of the model knows; None for any language."""
        if self.on_demand:
            return self.on_demand.languages
        return self.fitted.languages_ if self.fitted is not None and self.fitted.language_dependent else None

    def tail(self, *, for_encoder: bool = False) -> list[nn.Module]:
        """The modules after the raw vectors: reduction, alignment and normalisation.

        Args:
            for_encoder: Whether an mteb encoder applies them: languages may be fitted when they are first used, and
                unaligned vectors of a source that does not normalise stay as they are.
        """
        from sentence_transformers.sentence_transformer.modules import Normalize

        from xalign_models.alignments.module import Aligned
        from xalign_models.models.on_demand import FittedOnDemand

        modules: list[nn.Module] = [*self.reduced]
        if for_encoder and self.on_demand:
            modules.append(FittedOnDemand(self.on_demand, self.encoding, self.encode))
        elif self.fitted is not None:
            modules.append(self.fitted.module() or Aligned.of(self.fitted))
        elif for_encoder and not self.backbone.source.normalises:
            return modules
        return [*modules, Normalize()]

"""A model's spec, backbone, fit and modules; each is opened or computed once, when first needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from xalign_models.alignments.groups import of_prompt, unmoved
from xalign_models.alignments.registry import find_method
from xalign_models.backbones import loading
from xalign_models.backbones.loading import open_backbone
from xalign_models.errors import AlignmentError, ModelError
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


QUERIES, DOCUMENTS = ("query", "default"), ("document", "passage", "default")
"""Names of the prompts of each role; the first that a backbone has is the role's."""
ROLES = ("default", "query", "document", "passage")
"""Names of the prompts that do not belong to a task."""


def prompt_names(names: str | Sequence[str] | None) -> list[str]:
    """Names of prompts, as a list or separated by commas; no names means all prompts."""
    return names.split(",") if isinstance(names, str) else list(names or ())


class Recipe:
    """The parts of a model.

    Args:
        spec: The model.
        raw: Encoder of its raw vectors; required by the parts that need vectors.
        backbone: Its backbone, if already open.
        prompts: Names of the prompts to fit; by default all.
    """

    def __init__(
        self,
        spec: ModelSpec,
        raw: RawEncoder | None = None,
        backbone: Backbone | None = None,
        prompts: str | Sequence[str] | None = None,
    ) -> None:
        self.spec = spec
        self._raw, self._backbone, self._names = raw, backbone, prompt_names(prompts)

    @cached_property
    def backbone(self) -> Backbone:
        """The backbone of the raw vectors."""
        return self._backbone or open_backbone(self.spec.backbone)

    @property
    def raw(self) -> RawEncoder:
        """The encoder of raw vectors."""
        assert self._raw is not None
        return self._raw

    @cached_property
    def alignment(self) -> AlignmentSpec | None:
        """The alignment's spec, limited to languages that prompts name, if any. Raises DataError without fit text."""
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
        """40 hex digits of everything that determines the model's vectors. Raises XAlignError if a part is missing."""
        spec = self.spec.backbone
        parts: list[Any] = [self.backbone.fingerprint, self.backbone.prompts]
        if spec.whole != spec:
            parts.append([spec.truncate_dim, spec.vectors])
        if spec.vectors is Vectors.INT8 and not self.spec.alignment:
            parts.append(fitting.fingerprint(self.calibration))
        if self.alignment:
            parts.append(fitting.fingerprint(self.alignment))
            if len(self.prompts) > 1:
                parts.append(["maps by prompt", self.prompts])
        return digest(*parts)[:40]

    @cached_property
    def reduced(self) -> tuple[Reduced, ...]:
        """Module that truncates or quantises vectors, if any; int8 encodes fit text. Raises XAlignError without it."""
        spec = self.spec.backbone
        if spec.whole == spec:
            return ()
        from xalign_models.backbones.reduced import Reduced, ranges_of

        ranges = None
        if spec.vectors is Vectors.INT8:
            whole = Recipe(ModelSpec(spec.whole), self.raw)
            vectors = whole.fit_vectors(self.calibration).values()
            sides = (side for part in vectors for side in (part if isinstance(part, tuple) else (part,)))
            ranges = ranges_of(sides, spec.truncate_dim)
        return (Reduced(spec.truncate_dim, spec.vectors, ranges),)

    @cached_property
    def prompts(self) -> tuple[str, ...]:
        """The prompts that the model's texts may have, the default one first, or those to fit.

        Raises:
            ModelError: The backbone has no prompt of a name.
        """
        prompts = self.backbone.prompts
        known = sorted({"default", *prompts, *self._sides} - loading.prompts_by_language(prompts).keys())
        if missing := [name for name in self._names if name not in known]:
            raise ModelError(
                f"{self.spec.backbone.name} has no prompt {', '.join(missing)}; it has {', '.join(known)}."
            )
        return loading.text_prompts(prompts, self._sides, self._names or None)

    def role_prompts(self) -> tuple[str, ...]:
        """The distinct prompts of queries and documents among those to fit. Raises ModelError as :attr:`prompts`."""
        names, prompts = self._names, self.prompts
        of_roles = (
            self._first_of([name for name in role if not names or name in names]) for role in (QUERIES, DOCUMENTS)
        )
        return tuple(dict.fromkeys(prompt for found in of_roles for prompt in found)) or prompts[:1]

    def _first_of(self, names: Sequence[str]) -> tuple[str, ...]:
        return loading.text_prompts(self.backbone.prompts, self._sides, names)[:1]

    @property
    def _sides(self) -> frozenset[str]:
        return self.backbone.source.sides()

    def encoding(self, prompt: str) -> str:
        """Fingerprint of the vectors of :meth:`encode` under a prompt."""
        prompts, own = self.backbone.prompts, loading.prompts_by_language(self.backbone.prompts)
        chosen = [prompts] if loading.prompt_languages(prompts) else [prompt, *([own] if own else [])]
        return digest(self.raw.namespace, *chosen, *(module.get_config_dict() for module in self.reduced))

    def encode(
        self, texts: Sequence[str], language: str, *, prompt: str | None = None, progress: str | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors (n, d) of texts of one language, under a prompt or the default one, as alignments are fitted on."""
        import torch

        vectors = self.raw.encode(texts, loading.prompt_in(self.backbone.prompts, language, prompt), progress)
        for module in self.reduced:
            vectors = module.reduce(torch.from_numpy(vectors)).numpy()
        return vectors

    def fit_vectors(self, spec: AlignmentSpec | None = None, prompt: str | None = None) -> dict[str, Any]:
        """The vectors that the alignment is fitted on; see :func:`~xalign_models.models.fitting.fit_vectors`."""
        spec = spec or self.alignment
        assert spec is not None
        return fitting.fit_vectors(spec, partial(self.encode, prompt=prompt))

    def fit(self, spec: AlignmentSpec, prompt: str) -> Alignment:
        """The maps of a prompt, fitted now or taken from the cache of fits.

        A joint method is fitted on the prompts of queries, documents and other texts; a map that serves all languages
        also serves the prompts of tasks. With ``index_only``, texts other than documents get the identity.

        Raises:
            AlignmentError: With ``index_only``, queries and documents have the same prompt.
            XAlignError: Fit text is missing, or the method cannot be fitted on it.
        """
        return self._of_role(self._fit(spec, prompt), prompt)

    def _cached(self, spec: AlignmentSpec, prompt: str) -> Alignment | None:
        """The cached fit of all languages under a prompt, for a method that is fitted by prompt."""
        if self._together(spec, prompt)[1:]:
            return None
        earlier = fitting.cached(spec, self.encoding(prompt))
        return earlier and self._of_role(earlier, prompt)

    def _of_role(self, fitted: Alignment, prompt: str) -> Alignment:
        """The maps of a prompt; identities if only documents are mapped and the prompt is not theirs."""
        if not getattr(fitted, "index_only", False):
            return fitted
        if self._first_of(QUERIES) == self._first_of(DOCUMENTS):
            raise AlignmentError(
                f"{fitted.method}: index_only tells documents by their prompt, but {self.spec.backbone.name} has the "
                "same for queries. Fit without it, and map only the index with `xalign apply`."
            )
        return fitted if prompt in self._first_of(DOCUMENTS) else unmoved(fitted)

    def _together(self, spec: AlignmentSpec, prompt: str) -> tuple[str, ...]:
        """The prompts whose maps are fitted together with a prompt's."""
        method, roles = find_method(spec.method), loading.text_prompts(self.backbone.prompts, self._sides, ROLES)
        together = roles if prompt in roles or not method.language_dependent else (*roles, prompt)
        return together if method.joint else (prompt,)

    def _fit(self, spec: AlignmentSpec, prompt: str) -> Alignment:
        together = self._together(spec, prompt)
        if not together[1:]:
            return fitting.fit_cached(spec, self.encoding(prompt), partial(self.encode, prompt=prompt))
        encoding = digest(*map(self.encoding, together))
        return of_prompt(fitting.fit_cached(spec, encoding, self.encode, together), prompt)

    @cached_property
    def fits(self) -> dict[str, Alignment]:
        """The alignment of each prompt, the default one first; empty for an unaligned backbone."""
        return {prompt: self.fit(self.alignment, prompt) for prompt in self.prompts} if self.alignment else {}

    @cached_property
    def fitted(self) -> Alignment | None:
        """The alignment of the default prompt; None for an unaligned backbone."""
        return self.fit(self.alignment, self.prompts[0]) if self.alignment else None

    @cached_property
    def languages(self) -> tuple[str, ...] | None:
        """The languages that an encoder of the model knows; None for any language."""
        if self.alignment is None or not find_method(self.alignment.method).language_dependent:
            return None
        return fitting.fit_languages(self.alignment, fitting.load_corpora(self.alignment))

    def tail(self, *, for_encoder: bool = False) -> list[nn.Module]:
        """The modules after the raw vectors: reduction, alignment and normalisation.

        Args:
            for_encoder: Whether an mteb encoder applies them: it may fit languages when they are first used, and
                unaligned vectors of a source that does not normalise stay as they are.
        """
        from sentence_transformers.sentence_transformer.modules import Normalize

        from xalign_models.alignments.module import module_of
        from xalign_models.models.on_demand import FittedOnDemand

        modules: list[nn.Module] = [*self.reduced]
        if for_encoder and self.alignment:
            spec = dataclasses.replace(self.alignment, languages=self.languages or self.alignment.languages)
            modules.append(FittedOnDemand(spec, self.fit, partial(self._cached, spec)))
        elif self.fits:
            modules.append(module_of(self.fits))
        elif for_encoder and not self.backbone.source.normalises:
            return modules
        return [*modules, Normalize()]

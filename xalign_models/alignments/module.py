"""The sentence-transformers module that applies any alignment. Its import path is a file format: do not move it."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from sentence_transformers.base.modules.module import Module
from torch import Tensor

from xalign_models.alignments.base import FORMAT, Alignment, rows_by_language
from xalign_models.assets import CARD
from xalign_models.errors import AlignmentError, LanguageError
from xalign_models.files import is_number
from xalign_models.identification import UNDETERMINED, Unidentified, identify
from xalign_models.languages import canonical, is_canonical
from xalign_models.specs import Unknown
from xalign_models.typology import relative

logger = logging.getLogger(__name__)


class Aligned(Module):
    """Maps ``features["sentence_embedding"]`` by language and prompt: ``y = x W_l - (x C_l) C_l^T + b_l``.

    The language of a row, in any code, comes from the list ``features["lang"]``, which the first module fills from
    inputs ``{"text": ..., "lang": ...}``, else from the keyword ``lang`` of ``encode``, else from ``default_lang``. The
    first module also sets the prompt of the batch, ``features["prompt"]``.
    Maps stay float32 in models of any dtype; half-precision embeddings are mapped in float32 and cast back.

    Args:
        method: Name of the alignment, for messages and provenance.
        dim: Embedding dimension d.
        languages: Fitted languages in the order of the maps; None if one map serves all languages.
        shapes: Shapes of the factors; for an affine map "weight" (L, d, d), "basis" (L, d, k), "shift" (L, d). For P
            prompts the first axis is P L long, with the maps of the first prompt first.
        fingerprint: Fingerprint of the alignment.
        format: Version of the saved format.
        default_lang: Language of texts without one; ``auto`` picks it from the fitted ones, and gives doubtful texts
            the mean of the maps. None raises an error.
        unknown: Treatment of a text in a language that was not fitted, or is unknown: ``error``; ``related`` for the
            map of its nearest relative by URIEL, or ``mean`` without one; ``mean`` for the mean of the vectors that all
            maps give; or ``unaligned`` for its raw vector.
        prompts: Fitted prompts, the default one first; None, as in models saved without them, if one map serves all.
        unknown_prompt: Treatment of a text under a prompt that was not fitted: ``error``, or ``default`` for the maps
            of the default prompt.
        length: Median length of the vectors that the maps were fitted on; None if unknown or not needed.

    Raises:
        AlignmentError: The format has another version, or ``unknown``, ``unknown_prompt`` or ``length`` is invalid.
        LanguageError: ``default_lang`` is not a language.
    """

    config_keys = ["method", "dim", "languages", "shapes", "fingerprint", "format", "default_lang", "unknown",
                   "prompts", "unknown_prompt", "length"]  # fmt: skip
    forward_kwargs = {"lang"}
    fit_seconds: float | None = None
    """Average duration of fitting a language, without encoding, in seconds; None if unknown, as in a saved model."""

    provenance: str = ""
    """The model's card (JSON), kept beside the maps, so that it survives sentence-transformers' own way of saving."""

    tensors: ClassVar[tuple[str, ...]] = ("weight", "basis", "shift")
    """Names of the buffers, one per factor; a factor that the alignment lacks is None."""
    weight: Tensor | None
    basis: Tensor | None
    shift: Tensor | None

    def __init__(
        self,
        method: str,
        dim: int,
        languages: Sequence[str] | None,
        shapes: Mapping[str, Sequence[int]],
        fingerprint: str = "",
        format: int = FORMAT,
        default_lang: str | None = None,
        unknown: Unknown = "error",
        prompts: Sequence[str] | None = None,
        unknown_prompt: Literal["error", "default"] = "error",
        length: float | None = None,
    ) -> None:
        """Allocate the maps; ``of`` and ``load`` fill them."""
        super().__init__()
        if unknown_prompt not in {"error", "default"}:
            raise AlignmentError(f"unknown_prompt={unknown_prompt!r}; choose error or default.")
        if not (length is None or (is_number(length) and length > 0)):
            raise AlignmentError(f"length={length!r:.50} is not a valid vector length; fit and save the model again.")
        for name, texts in (("languages", languages), ("prompts", prompts)):
            if not all(isinstance(text, str) for text in texts or ()):
                raise AlignmentError(f"{name}={texts!r:.50} are not all texts; fit and save the model again.")
        self.prompts = None if prompts is None else list(prompts)
        self.unknown_prompt, self.length = unknown_prompt, length
        self._said = set[str]()
        self._set_handling(default_lang, unknown)
        if format != FORMAT:
            raise AlignmentError(
                f"the alignment has format {format!r}, but this version reads {FORMAT}; save it again."
            )
        self.method, self.dim, self.fingerprint, self.format = method, dim, fingerprint, format
        self.languages = None if languages is None else list(languages)
        self.shapes = {name: list(shape) for name, shape in shapes.items()}
        maps = 1 if languages is None else len(set(languages))
        first = {shape[0] if shape else 0 for shape in self.shapes.values()} or {maps}
        self.stride = maps if first != {maps} else 0  # from one prompt's maps to the next prompt's
        self._maps = max(first)
        if isinstance(languages, str) or first not in ({maps}, {maps * max(1, len(set(prompts or ())))}):
            raise AlignmentError(f"{method} needs one map per language and prompt; fit and save the model again.")
        for name in self.tensors:
            self.register_buffer(name, torch.zeros(self.shapes[name]) if name in shapes else None)

    @classmethod
    def of(cls, fitted: Alignment | Mapping[str, Alignment]) -> Self:
        """The module that applies a fitted alignment, or the alignments of several prompts, the default one first.

        Raises:
            AlignmentError: The alignment is not fitted, its maps are not finite, it maps from the pivot and cannot
                follow an encoder, or the prompts were fitted on other languages.
        """
        prompts, parts = (None, [fitted]) if isinstance(fitted, Alignment) else ([*fitted], [*fitted.values()])
        fingerprints = [part.fingerprint() for part in parts]
        if len(set(fingerprints)) == 1:  # one map serves all prompts
            del parts[1:]
        alignment = parts[0]
        if getattr(alignment, "direction", "to_pivot") == "from_pivot":
            raise AlignmentError('maps with direction="from_pivot" take pivot text only; use direction="to_pivot".')
        if len({part.languages_ for part in parts}) > 1:
            raise AlignmentError("prompts were fitted on different languages; fit all on the same text.")
        stacks = [part.factors() for part in parts]
        factors = {name: np.concatenate([stack[name] for stack in stacks]) for name in stacks[0]}
        if not all(np.isfinite(stack).all() for stack in factors.values()):
            raise AlignmentError(f"the maps of {alignment.method} are not finite, so no model was made.")
        if not factors:
            raise AlignmentError(f"{alignment.method} has no maps; its factors() must return them by name.")
        if unknown := sorted(factors.keys() - {*cls.tensors}):
            raise AlignmentError(f"{alignment.method}: factors() returns {unknown[0]}, not {', '.join(cls.tensors)}.")
        moved = any(factors[name].any() for name in factors.keys() - {"weight", "basis"})  # others commute with lengths
        module = cls(
            alignment.method,
            alignment.dim_,
            alignment.languages_ if alignment.language_dependent else None,
            {name: stack.shape for name, stack in factors.items()},
            hashlib.sha256(" ".join(fingerprints).encode()).hexdigest() if parts[1:] else fingerprints[0],
            prompts=prompts,
            length=alignment.length_ if moved else None,
        )
        module.load_state_dict({name: torch.from_numpy(stack) for name, stack in factors.items()})
        if alignment.seconds_ is not None:
            module.fit_seconds = alignment.seconds_ / len(alignment.languages_)
        return module

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # or each mixture of languages would be compiled anew
    def forward(self, features: dict[str, Any], lang: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Replace ``features["sentence_embedding"]`` (n, d) by the aligned embeddings, in the same dtype.

        Args:
            features: Features of the batch; "lang", one language per row, takes precedence over the keyword.
            lang: Language of all rows, in any code.
            **kwargs: Ignored.

        Raises:
            LanguageError: A language is missing or not fitted, or ``lang`` is a list.
            AlignmentError: The embeddings have another dimension than the alignment, or the prompt was not fitted.
        """
        if not (lang is None or isinstance(lang, str)):
            raise LanguageError(
                "encode reorders texts but not a list of languages; pass inputs {'text': ..., 'lang': ...} instead."
            )
        embeddings: Tensor = features["sentence_embedding"]
        if embeddings.shape[-1] != self.dim:
            raise AlignmentError(
                f"embeddings of dimension {embeddings.shape[-1]}, but {self.method} was fitted on {self.dim}."
            )
        codes = self.codes(features.get("lang"), lang, len(embeddings))
        with torch.autocast(embeddings.device.type, enabled=False):
            x = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
            out = x.clone()
            for number, rows in self.numbers(codes, len(x), features.get("prompt")):
                out[rows] = self.mapped(x[rows], number)
        features["sentence_embedding"] = out.to(embeddings.dtype)
        return features

    def codes(self, by_row: Sequence[str | None] | None, lang: str | None, count: int) -> Any:
        """The canonical language of each row, (n,); None if one map serves all.

        Args:
            by_row: The language of each row, None if unknown.
            lang: Language of rows without one; takes precedence over ``default_lang``.
            count: Number of rows if ``by_row`` is None.

        Raises:
            LanguageError: A language is ``auto``, and the text or the identifier is missing.
        """
        if self.languages is None:
            return None
        fallback = lang or self.default_lang
        codes = [code or fallback for code in by_row or [None] * count]
        auto = [row for row, code in enumerate(codes) if code == "auto"]
        texts = [code.text for code in codes if isinstance(code, Unidentified)]
        if len(texts) < len(auto):
            raise LanguageError(
                f'lang="auto" does not work with this backbone, which drops the texts; give one of the fitted '
                f"languages: {', '.join(self.languages)}."
            )
        for row, found in zip(auto, identify(texts, self.languages) if auto else (), strict=True):
            codes[row] = found.language
        return [None if code is None else _canonical(code) for code in codes]

    def numbers(self, codes: Any, count: int, prompt: str | None) -> list[tuple[int, slice | list[int]]]:
        """The rows that each map applies to, by its number for :meth:`mapped`; rows that stay unchanged are left out.

        Args:
            codes: Canonical language of each row, (n,), or None for an unknown one; None if one map serves all. A row
                of :data:`~xalign_models.identification.UNDETERMINED` language gets the mean of the maps, or with
                ``unaligned`` none.
            count: The number of rows, n.
            prompt: Prompt of all rows; None if unknown.

        Raises:
            LanguageError: A language is not fitted, and ``unknown`` is ``error``; or it is missing or invalid, and
                ``unknown`` is ``error`` or ``related``.
            AlignmentError: The prompt is not fitted.
        """
        offset = self.offset(prompt)
        places = rows_by_language(codes, count, self.languages, self.method, self._stand_in)
        return [(offset + place, rows) for place, rows in places if place >= 0]

    def _stand_in(self, code: str | None) -> int | None:
        """The position of the map for a language that was not fitted: past the maps for their mean, -1 for no map."""
        if code == UNDETERMINED or self.unknown in {"mean", "unaligned"}:
            return -1 if self.unknown == "unaligned" else self._maps
        if self.unknown == "error" or code is None or not is_canonical(code):
            return None
        fitted = tuple(self.languages or ())
        nearest = relative(code, fitted)
        return self._maps if nearest is None else fitted.index(nearest)

    def mapped(self, x: Tensor, number: int) -> Tensor:
        """Map rows (n, d) by a number of :meth:`numbers`; a number past the maps means the mean of a prompt's maps."""
        if number < self._maps:
            return self.map_rows(x, number)
        first = number - self._maps
        return torch.stack([self.map_rows(x, first + i) for i in range(len(self.languages or (0,)))]).mean(0)

    def set_handling(self, default_lang: str | None, unknown: Unknown) -> None:
        """Set ``default_lang`` and ``unknown``; ``unaligned`` needs a language whose map is the identity.

        Raises:
            AlignmentError: ``unknown`` is invalid, or it is ``unaligned`` and the maps move every language: raw
                vectors would be far from all mapped ones.
            LanguageError: ``default_lang`` is neither a language nor ``auto``.
        """
        x = torch.randn(8, self.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        kept = (torch.allclose(self.map_rows(x, i), x) for i in range(len(self.languages or (0,))))
        if unknown == "unaligned" and not any(kept):
            raise AlignmentError(
                f"{self.method} moves every fitted language, so unaligned texts would be far from all others; "
                "choose related or mean."
            )
        self._set_handling(default_lang, unknown)

    def _set_handling(self, default_lang: str | None, unknown: Unknown) -> None:
        if unknown not in get_args(Unknown):
            raise AlignmentError(f"unknown={unknown!r}; choose one of {', '.join(get_args(Unknown))}.")
        self.default_lang = default_lang if default_lang in {None, "auto"} else canonical(str(default_lang))
        self.unknown = unknown

    def offset(self, prompt: str | None) -> int:
        """Number of the first map of a prompt; None means an unknown prompt.

        Raises:
            AlignmentError: The prompt was not fitted, or is unknown and the maps depend on it.
        """
        if self.prompts is None or (prompt is None and not self.stride):
            return 0
        if prompt is not None and prompt in self.prompts:
            return self.stride * self.prompts.index(prompt)
        told = "texts with an unknown prompt" if prompt is None else f"texts with the prompt {prompt!r}"
        message = f"{self.method} is not fitted for {told}; fitted prompts: {', '.join(map(repr, self.prompts))}."
        if self.unknown_prompt == "error":
            raise AlignmentError(
                f"{message} Encode with one of them, fit the model with this prompt, or set unknown_prompt to "
                "'default' in its Aligned module and save it."
            )
        if told not in self._said:
            logger.warning("%s The maps of %r serve them.", message, self.prompts[0])
            self._said.add(told)
        return 0

    def folded(self, lang: str | None = None, prompt: str | None = None) -> tuple[Tensor, Tensor]:
        """The affine map ``y = x W + b`` of a language, or of all (None): W (d, d) and b (d,), float32.

        Without a prompt, the map is the default prompt's.

        Raises:
            LanguageError: The language is missing or not fitted.
            AlignmentError: The prompt is not fitted, or the map is not affine.
        """
        codes = self.codes([lang], None, 1)
        ((index, _),) = rows_by_language(codes, 1, self.languages, self.method)
        return self.dense(index + (0 if prompt is None else self.offset(prompt)))

    def dense(self, number: int) -> tuple[Tensor, Tensor]:
        """The affine map with a number of :meth:`numbers`, or a mean of maps: W (d, d) and b (d,), float32.

        Raises:
            AlignmentError: The map is not affine.
        """
        if type(self).map_rows is not Aligned.map_rows:
            raise AlignmentError(f"{self.method} is not affine, so no dense layer can replace it; keep its own module.")
        eye = torch.eye(self.dim, dtype=torch.float64)
        shift = self.mapped(torch.zeros_like(eye[:1]), number)
        return (self.mapped(eye, number) - shift).float(), shift[0].float()

    def map_rows(self, x: Tensor, index: int) -> Tensor:
        """Map rows (n, d), float32 or float64, by the map at ``index``, as ``offset`` and ``languages`` count.

        The subclass of a method that is not affine overrides this method and ``tensors``.
        """
        factors = (self.weight, self.basis, self.shift)
        y: Tensor = Alignment.apply(x, *(None if stack is None else stack[index].to(x.dtype) for stack in factors))
        return y

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the maps between devices but do not cast them: ``model.half()`` must not round them."""

        def keep_dtype(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        super()._apply(keep_dtype, recurse)
        return self

    def get_embedding_dimension(self) -> int:
        """The embedding dimension d, which alignment does not change."""
        return self.dim

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write config.json, the weights (safetensors by default) and the model's card."""
        self.save_config(output_path)
        if self.provenance:
            Path(output_path, CARD).write_text(self.provenance, encoding="utf-8")
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> Self:
        """Read a saved module from a directory or the hub, with the keywords of sentence-transformers.

        Raises:
            AlignmentError: The format has another version, or the maps are not finite.
        """
        names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        hub = {name: kwargs[name] for name in names if name in kwargs}
        module = cls(**cls.load_config(model_name_or_path, **hub))
        loaded: Self = cls.load_torch_weights(model_name_or_path, model=module, **hub)
        if card := cls.load_file_path(model_name_or_path, CARD, **hub):
            loaded.provenance = Path(card).read_text(encoding="utf-8")
        if not all(tensor.isfinite().all() for tensor in loaded.buffers()):
            raise AlignmentError(f"the maps in {model_name_or_path} are not finite; fit and save the model again.")
        return loaded


def module_of(fits: Mapping[str, Alignment]) -> Aligned:
    """The module that applies the alignments of several prompts, of the class that the method names."""
    own = next(iter(fits.values())).module()
    kind = Aligned if own is None else type(own)
    return kind.of(fits)


@cache
def _canonical(code: str) -> str:
    """The canonical form of a code; an unknown code is returned unchanged, for the error message."""
    try:
        return canonical(code)
    except LanguageError:
        return code

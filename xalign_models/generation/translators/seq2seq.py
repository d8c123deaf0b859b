"""Translation by sequence-to-sequence models: opus-mt, m2m100, NLLB and their like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from xalign_models.corpora import ENGLISH
from xalign_models.errors import LanguageError
from xalign_models.generation.language_model import Completion, LanguageModel
from xalign_models.generation.translators.base import Translator, TranslatorSpec
from xalign_models.languages import display_name, to_flores, to_iso639_1
from xalign_models.specs import Dtype, digest

MOST_TOKENS = 512


def _m2m100(language: str) -> str:
    """The ISO 639-1 code if there is one, else the three-letter code; Northern Sotho is an exception."""
    return {"nso-Latn": "ns"}.get(language) or to_iso639_1(language) or language[:3]


_SCHEMES: tuple[tuple[str, Callable[[str], str]], ...] = (("__{}__", _m2m100), ("{}", to_flores))
"""Language tokens of m2m100 and NLLB."""


class Seq2SeqTranslator(Translator):
    """A translation model that gets both languages in its tokenizer's own codes.

    Args:
        spec: Kind ``mt``.
        device: cpu, cuda or mps.
        dtype: Type of weights and activations, if not the device's default.
    """

    def __init__(self, spec: TranslatorSpec, device: str | None = None, dtype: Dtype | None = None) -> None:
        self.spec = spec
        self.beams = int(dict(spec.options).get("beams", 1))
        self.model = LanguageModel(spec.model, device=device, dtype=dtype, encoder_decoder=True)

    @cached_property
    def identity(self) -> str:
        """Digest of weights and options."""
        return digest("mt", self.model.resolved.fingerprint, self.spec.options)[:16]

    def tag(self, language: str | None) -> dict[str, Any]:
        """Set the tokenizer's source language, and return the option that makes the output English.

        m2m100 names languages mostly by ISO 639-1, NLLB by FLORES-200; models of one pair or of many into English
        (opus-mt) need no names.

        Raises:
            LanguageError: The model needs the language, and it is unknown or unsupported.
        """
        if self._scheme is None:
            return {}
        if not self.knows(language):
            source_language = "a text whose language is not known" if language is None else display_name(language)
            raise LanguageError(f"{self.spec.model} does not translate {source_language}; use another translator.")
        wrap, code = self._scheme
        self.model.tokenizer.src_lang = code(str(language))
        return {"forced_bos_token_id": self._id(wrap.format(code(ENGLISH)))}

    def knows(self, language: str | None) -> bool:
        """Whether the model needs no language, or has this one."""
        if self._scheme is None:
            return True
        wrap, code = self._scheme
        return language is not None and self._id(wrap.format(code(language))) is not None

    def _id(self, token: str) -> int | None:
        """The tokenizer's id of a token; m2m100's tokenizer has its languages outside the vocabulary."""
        token_id = self.model.tokenizer.convert_tokens_to_ids(token)
        return None if token_id in (None, self.model.tokenizer.unk_token_id) else int(token_id)

    @cached_property
    def _scheme(self) -> tuple[str, Callable[[str], str]] | None:
        return next(((wrap, code) for wrap, code in _SCHEMES if self._id(wrap.format(code(ENGLISH))) is not None), None)

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """Beam search, or greedy with one beam; texts are truncated to the model's maximum length.

        Raises:
            LanguageError: The model does not know the language.
        """
        options = self.tag(language)
        lengths = [len(ids) for ids in self.model.tokenizer(list(texts))["input_ids"]]
        return self.model.write(
            texts, max_new_tokens=min(MOST_TOKENS, 2 * max(lengths) + 16), num_beams=self.beams, **options
        )

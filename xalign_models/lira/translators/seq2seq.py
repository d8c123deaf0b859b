"""Translation by sequence-to-sequence models: opus-mt, m2m100, NLLB and their like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from xalign_models.corpora import ENGLISH
from xalign_models.errors import LanguageError
from xalign_models.generation import Completion, LanguageModel
from xalign_models.languages import display_name, to_flores, to_iso639_1
from xalign_models.lira.translators.base import Translator, TranslatorSpec
from xalign_models.specs import Dtype, digest

MOST_TOKENS = 512
_SCHEMES: tuple[tuple[str, Callable[[str], str | None]], ...] = (("__{}__", to_iso639_1), ("{}", to_flores))
"""How m2m100 and NLLB write a language as a token."""


class Seq2SeqTranslator(Translator):
    """A translation model, told the two languages in the way that its tokenizer knows.

    Args:
        spec: Kind ``mt``.
        device: cpu, cuda or mps.
        dtype: Of weights and activations, if not the device's own.
    """

    def __init__(self, spec: TranslatorSpec, device: str | None = None, dtype: Dtype | None = None) -> None:
        self.spec = spec
        self.beams = int(dict(spec.options).get("beams", 1))
        self.model = LanguageModel(spec.model, device=device, dtype=dtype, encoder_decoder=True)

    @cached_property
    def identity(self) -> str:
        """Of weights and options."""
        return digest("mt", self.model.resolved.fingerprint, self.spec.options)[:16]

    def tag(self, language: str | None) -> dict[str, Any]:
        """Set the tokenizer's source language and give what makes the model begin in English.

        m2m100 names languages by ISO 639-1, NLLB by FLORES-200; models of one pair or of many into English (opus-mt)
        need no names.

        Raises:
            LanguageError: The model needs the language, and it is not known or the model does not have it.
        """
        tokenizer = self.model.tokenizer
        vocabulary = tokenizer.get_vocab()
        scheme = next(((wrap, code) for wrap, code in _SCHEMES if wrap.format(code(ENGLISH)) in vocabulary), None)
        if scheme is None:
            return {}
        wrap, code = scheme
        source = None if language is None else code(language)
        if source is None or wrap.format(source) not in vocabulary:
            told = "a text whose language is not known" if language is None else display_name(language)
            raise LanguageError(f"{self.spec.model} does not translate {told}; use another translator for it.")
        tokenizer.src_lang = source
        return {"forced_bos_token_id": vocabulary[wrap.format(code(ENGLISH))]}

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """Beam search, or greedy with one beam; texts are cut at the model's own length."""
        options = self.tag(language)
        lengths = [len(ids) for ids in self.model.tokenizer(list(texts))["input_ids"]]
        return self.model.write(
            texts, max_new_tokens=min(MOST_TOKENS, 2 * max(lengths) + 16), num_beams=self.beams, **options
        )

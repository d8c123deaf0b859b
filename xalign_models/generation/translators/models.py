"""Translation by models: prompted causal language models, and sequence-to-sequence models such as opus-mt or NLLB."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from xalign_models.corpora import ENGLISH
from xalign_models.errors import LanguageError, ModelError
from xalign_models.generation.language_model import Completion, LanguageModel
from xalign_models.generation.served import ServedModel, open_writer
from xalign_models.generation.translators.base import Translator
from xalign_models.languages import display_name, to_flores, to_iso639_1
from xalign_models.specs import digest

REQUEST = (
    "Translate the {language} text between the lines into natural English. Keep its meaning, its mood and its style. "
    "Reply with the English text alone: no introduction, no notes, no quotation marks.\n---\n{text}\n---"
)
"""Prompt for models with a chat template."""
SHOTS = (
    (
        "German",
        "Der Zug nach Hamburg fährt heute zwanzig Minuten später.",
        "The train to Hamburg leaves twenty minutes later today.",
    ),
    ("Indonesian", "Saya belum sempat membaca surat itu.", "I have not had time to read that letter yet."),
    ("Spanish", "¡Qué alegría que hayas venido!", "How lovely that you came!"),
    ("Hindi", "दुकान सुबह नौ बजे खुलती है।", "The shop opens at nine in the morning."),
    ("Arabic", "أين يمكنني شراء التذاكر؟", "Where can I buy the tickets?"),
)
"""Examples for models without a chat template; written for this purpose."""
UNKNOWN = "Foreign"
EXTRA = 16
MOST_TOKENS = 512


class CausalTranslator(Translator):
    """Prompts a language model.

    A model with a chat template gets :data:`REQUEST`; any other model continues a list of examples by a line.
    """

    @cached_property
    def model(self) -> LanguageModel | ServedModel:
        """The prompted model."""
        return open_writer(self.spec.model, self.device, self.dtype)

    @cached_property
    def identity(self) -> str:
        """Digest of prompt, options and weights or, for a served model, name and address."""
        return digest("llm", self.model.fingerprint, REQUEST, SHOTS, self.spec.options)[:16]

    def prompt(self, text: str, language: str | None) -> str:
        """The prompt of a text."""
        name = UNKNOWN if language is None else display_name(language)
        if self.model.chats:
            language_name = "foreign-language" if language is None else name
            return self.model.chat(REQUEST.format(language=language_name, text=text))
        shots = SHOTS[: int(self.options.get("shots", len(SHOTS)))]
        lines = [f"{shot_language}: {source}\nEnglish: {english}\n" for shot_language, source, english in shots]
        return "\n".join([*lines, f"{name}: {' '.join(text.split())}\nEnglish:"])

    def translate(self, texts: Sequence[str], language: str | None) -> Sequence[Completion | ModelError]:
        """Completions of at most twice as many tokens as the longest text, plus a few."""
        longest = max(map(self.model.length, texts))
        return self.model.write(
            [self.prompt(text, language) for text in texts],
            max_new_tokens=2 * longest + int(self.options.get("extra", EXTRA)),
            stop=() if self.model.chats else ("\n",),
            temperature=float(self.options.get("temperature", 0)),
            seed=int(self.options.get("seed", 0)),
        )


def _m2m100(language: str) -> str:
    """The ISO 639-1 code if there is one, else the three-letter code; Northern Sotho is an exception."""
    return {"nso-Latn": "ns"}.get(language) or to_iso639_1(language) or language[:3]


_SCHEMES: tuple[tuple[str, Callable[[str], str]], ...] = (("__{}__", _m2m100), ("{}", to_flores))
"""Language tokens of m2m100 and NLLB."""


class Seq2SeqTranslator(Translator):
    """A translation model, which expects both languages in its tokenizer's own codes."""

    @cached_property
    def model(self) -> LanguageModel:
        """The translation model."""
        return LanguageModel(self.spec.model, device=self.device, dtype=self.dtype, encoder_decoder=True)

    @cached_property
    def identity(self) -> str:
        """Digest of weights and options."""
        return digest("mt", self.model.resolved.fingerprint, self.spec.options)[:16]

    def tag(self, language: str | None) -> dict[str, Any]:
        """Set the tokenizer's source language, and return the option that makes the output English.

        m2m100 names languages mostly by ISO 639-1, NLLB by FLORES-200; models that translate only into English
        (opus-mt) need no names.

        Raises:
            LanguageError: The model needs the language, and it is unknown or unsupported.
        """
        if self._scheme is None:
            return {}
        if not self.knows(language):
            source_language = "a text of unknown language" if language is None else display_name(language)
            raise LanguageError(f"{self.spec.model} does not translate {source_language}; use another translator.")
        wrap, code = self._scheme
        self.model.tokenizer.src_lang = code(str(language))
        return {"forced_bos_token_id": self._id(wrap.format(code(ENGLISH)))}

    def knows(self, language: str | None) -> bool:
        """Whether the model needs no language or knows this one."""
        if self._scheme is None:
            return True
        wrap, code = self._scheme
        return language is not None and self._id(wrap.format(code(language))) is not None

    def _id(self, token: str) -> int | None:
        """The tokenizer's id of a token; m2m100's tokenizer keeps its languages outside the vocabulary."""
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
        options = {"num_beams": int(self.options.get("beams", 1)), **self.tag(language)}
        longest = max(map(len, self.model.tokenizer(list(texts))["input_ids"]))
        return self.model.write(texts, max_new_tokens=min(MOST_TOKENS, 2 * longest + EXTRA), **options)

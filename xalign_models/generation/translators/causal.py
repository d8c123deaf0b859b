"""Translation by a causal language model, prompted by an instruction or, without chat training, by a few examples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from xalign_models.generation.language_model import Completion, LanguageModel
from xalign_models.generation.translators.base import Translator, TranslatorSpec
from xalign_models.languages import display_name
from xalign_models.specs import Dtype, digest

REQUEST = (
    "Translate the {language} text between the lines into natural English. Keep its meaning, its mood and its style. "
    "Reply with the English text alone: no introduction, no notes, no quotation marks.\n---\n{text}\n---"
)
"""For models that were trained to chat."""
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
"""Our own examples, for models that only continue texts."""
UNKNOWN = "Foreign"
EXTRA = 16


class CausalTranslator(Translator):
    """Asks a language model.

    A model with a chat template gets :data:`REQUEST`; any other continues a list of examples, up to the line's end.

    Args:
        spec: Kind ``llm``.
        device: cpu, cuda or mps.
        dtype: Type of weights and activations, if not the device's default.
    """

    def __init__(self, spec: TranslatorSpec, device: str | None = None, dtype: Dtype | None = None) -> None:
        self.spec = spec
        self.options = dict(spec.options)
        self.model = LanguageModel(spec.model, device=device, dtype=dtype)

    @cached_property
    def identity(self) -> str:
        """Digest of weights, prompt and options."""
        return digest("llm", self.model.resolved.fingerprint, REQUEST, SHOTS, self.spec.options)[:16]

    def prompt(self, text: str, language: str | None) -> str:
        """The prompt of a text."""
        name = UNKNOWN if language is None else display_name(language)
        if self.model.tokenizer.chat_template:
            language_name = "foreign-language" if language is None else name
            return self.model.chat(REQUEST.format(language=language_name, text=text))
        shots = SHOTS[: int(self.options.get("shots", len(SHOTS)))]
        lines = [f"{shot_language}: {source}\nEnglish: {english}\n" for shot_language, source, english in shots]
        return "\n".join([*lines, f"{name}: {' '.join(text.split())}\nEnglish:"])

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """Completions of at most twice the tokens of the longest text, plus a few."""
        longest = max(len(ids) for ids in self.model.tokenizer(list(texts), add_special_tokens=False)["input_ids"])
        return self.model.write(
            [self.prompt(text, language) for text in texts],
            max_new_tokens=2 * longest + int(self.options.get("extra", EXTRA)),
            stop=() if self.model.tokenizer.chat_template else ("\n",),
            temperature=float(self.options.get("temperature", 0)),
            seed=int(self.options.get("seed", 0)),
        )

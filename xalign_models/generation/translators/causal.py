"""Translation by a causal language model: asked in words, or shown a few examples where it was not trained to chat."""

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
        dtype: Of weights and activations, if not the device's own.
    """

    def __init__(self, spec: TranslatorSpec, device: str | None = None, dtype: Dtype | None = None) -> None:
        self.spec = spec
        self.options = dict(spec.options)
        self.model = LanguageModel(spec.model, device=device, dtype=dtype)

    @cached_property
    def identity(self) -> str:
        """Of weights, prompt and options."""
        return digest("llm", self.model.resolved.fingerprint, REQUEST, SHOTS, self.spec.options)[:16]

    def prompt(self, text: str, language: str | None) -> str:
        """What the model is given."""
        name = UNKNOWN if language is None else display_name(language)
        if self.model.tokenizer.chat_template:
            asked = "foreign-language" if language is None else name
            return self.model.chat(REQUEST.format(language=asked, text=text))
        shots = SHOTS[: int(self.options.get("shots", len(SHOTS)))]
        lines = [f"{other}: {one}\nEnglish: {english}\n" for other, one, english in shots]
        return "\n".join([*lines, f"{name}: {' '.join(text.split())}\nEnglish:"])

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """At most twice as many tokens as the longest text has, and a few."""
        longest = max(len(ids) for ids in self.model.tokenizer(list(texts), add_special_tokens=False)["input_ids"])
        return self.model.write(
            [self.prompt(text, language) for text in texts],
            max_new_tokens=2 * longest + int(self.options.get("extra", EXTRA)),
            stop=() if self.model.tokenizer.chat_template else ("\n",),
            temperature=float(self.options.get("temperature", 0)),
            seed=int(self.options.get("seed", 0)),
        )

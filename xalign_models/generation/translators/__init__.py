"""Translators into English: language models, translation models, references and files, with journals."""

from xalign_models.generation.translators.base import Kind, Translator, TranslatorSpec, clean
from xalign_models.generation.translators.running import Translations, make_translator, translate_all

__all__ = ["Kind", "Translations", "Translator", "TranslatorSpec", "clean", "make_translator", "translate_all"]

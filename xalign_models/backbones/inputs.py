"""What a first module is given: texts, or texts with their language, and languages that are to be identified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xalign_models.errors import LanguageError
from xalign_models.languages import canonical, match


def split_inputs(inputs: Sequence[Any], lang: str | None = None) -> tuple[list[Any], list[str | None]]:
    """Texts and the language of each.

    Args:
        inputs: Texts, or ``{"text": ..., "lang": ...}``.
        lang: Language of the texts that come without one, as any code; ``auto`` identifies it.

    Returns:
        The texts, and their canonical codes, None where nothing says the language.

    Raises:
        LanguageError: No language has such a code, or languages cannot be identified here.
    """
    texts = [row["text"] if isinstance(row, dict) and "text" in row else row for row in inputs]
    given = [(row.get("lang") if isinstance(row, dict) else None) or lang for row in inputs]
    return texts, [
        identify(text) if code == "auto" else None if code is None else canonical(code)
        for text, code in zip(texts, given, strict=True)
    ]


def prompt_of(prompts: Mapping[str, str], language: str | None) -> str:
    """The prompt of a text in a language, of prompts by canonical code.

    Raises:
        LanguageError: The text does not say its language, or there is no prompt in it.
    """
    if language is not None and (known := match(language, tuple(prompts))) in prompts:
        return prompts[known]
    raise LanguageError(
        f"There is no prompt in {language or 'the language of a text that does not say which'}; "
        f"there is one in {', '.join(sorted(prompts))}. The English one does for every language."
    )


def identify(text: str) -> str:
    """The canonical code of the language that a text is in, by py3langid.

    Raises:
        LanguageError: py3langid is not installed, or gives a code that is no language's.
    """
    try:
        import py3langid
    except ImportError:
        raise LanguageError('lang="auto" needs a language identifier: pip install "xalign[langid]".') from None
    return canonical(py3langid.classify(text)[0])

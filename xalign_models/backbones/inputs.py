"""Inputs of a first module: texts, or texts with their language, which may have to be identified."""

from collections.abc import Mapping, Sequence
from typing import Any

from xalign_models.errors import LanguageError
from xalign_models.identification import Unidentified, identify
from xalign_models.languages import canonical, match


def split_inputs(inputs: Sequence[Any], lang: str | None = None) -> tuple[list[Any], list[str | None]]:
    """Texts and the language of each.

    Args:
        inputs: Texts, or ``{"text": ..., "lang": ...}``.
        lang: Language of texts without one, as any code; ``auto`` identifies it.

    Returns:
        The texts, and their canonical codes; None for an unknown language, and an
        :class:`~xalign_models.identification.Unidentified` for one to be found among those that a module knows.

    Raises:
        LanguageError: A code is unknown.
    """
    texts = [row["text"] if isinstance(row, dict) and "text" in row else row for row in inputs]
    given = [(row.get("lang") if isinstance(row, dict) else None) or lang for row in inputs]
    return texts, [
        Unidentified.of(text) if code == "auto" else None if code is None else canonical(code)
        for text, code in zip(texts, given, strict=True)
    ]


def described(languages: Sequence[str | None], prompt: str | None) -> dict[str, Any]:
    """The features of a batch that maps by language and prompt need: ``prompt`` and, if any is known, ``lang``."""
    return {"prompt": prompt or "", **({"lang": list(languages)} if any(languages) else {})}


def prompt_of(prompts: Mapping[str, str], language: str | None) -> str:
    """The prompt of a text in a language, from prompts by canonical code; English or the first for a doubtful one.

    Raises:
        LanguageError: The language is unknown, or has no prompt.
    """
    if isinstance(language, Unidentified):
        found = identify([language.text], tuple(prompts))[0].language
        return prompts.get(found) or prompts.get("eng-Latn") or next(iter(prompts.values()))
    if language is not None and (known := match(language, tuple(prompts))) in prompts:
        return prompts[known]
    raise LanguageError(
        f"There is no prompt in {language or 'the unknown language of a text'}; "
        f"there is one in {', '.join(sorted(prompts))}. The English one works for every language."
    )

"""Inputs of a first module: texts, or texts with a language, which may need identification."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from numbers import Number
from typing import Any

from xalign_models.errors import DataError, LanguageError
from xalign_models.files import LONE
from xalign_models.identification import Unidentified, identify
from xalign_models.languages import canonical, match


def split_inputs(inputs: Sequence[Any], lang: str | None = None) -> tuple[list[Any], list[str | None]]:
    """Texts and the language of each.

    Args:
        inputs: Texts, or ``{"text": ..., "lang": ...}``.
        lang: Language of texts without one, as any code; ``auto`` identifies it.

    Returns:
        The texts, and their canonical codes; None for an unknown language, and an
        :class:`~xalign_models.identification.Unidentified` for one to be identified among those that a module knows.

    Raises:
        LanguageError: A code is unknown.
        DataError: A text contains half of a surrogate pair, which no tokenizer can read.
    """
    texts = [row["text"] if isinstance(row, dict) and "text" in row else row for row in inputs]
    require_whole(texts)
    common = code_of(lang)
    given = [code_of(row.get("lang") if isinstance(row, dict) else None) or common for row in inputs]
    return texts, [
        Unidentified.of(text) if code == "auto" else None if code is None else canonical(code)
        for text, code in zip(texts, given, strict=True)
    ]


def require_texts(rows: Iterable[Any], first: int = 0) -> None:
    """Refuse a row, the first of which has the number ``first``, without a text.

    Raises:
        DataError: A row or its text is None, a number or bytes.
    """
    for place, row in enumerate(rows, first):
        text = row["text"] if isinstance(row, dict) and "text" in row else row
        if not isinstance(text, str) and (text is None or isinstance(text, Number | bytes)):
            raise DataError(f"texts[{place}] is {text!r:.50}, which is not a text; give a string, or leave it out.")


def require_whole(texts: Sequence[Any]) -> None:
    """Refuse a text that no tokenizer can read.

    Raises:
        DataError: A text contains half of a surrogate pair.
    """
    for text in texts:
        if isinstance(text, str) and LONE.search(text):
            raise DataError(
                f"{text[:80]!r} contains half of a surrogate pair, as truncated or wrongly decoded texts do; "
                "text.encode('utf-8', 'replace').decode() replaces it with a question mark."
            )


def code_of(value: Any) -> str | None:
    """A language code as given; None for a missing one, including the nan or NA of a table.

    Raises:
        LanguageError: The value is not a text.
    """
    if value is None or isinstance(value, str):
        return value or None
    if str(value) in {"nan", "<NA>", "NaT"}:
        return None
    raise LanguageError(f"{value!r} is not a language code; give a text such as 'de', or None if it is unknown.")


def described(languages: Sequence[str | None], prompt: str | None) -> dict[str, Any]:
    """The features that maps by language and prompt need: ``prompt`` and, if any language is known, ``lang``."""
    return {"prompt": prompt or "", **({"lang": list(languages)} if any(languages) else {})}


def prompt_of(prompts: Mapping[str, str], language: str | None) -> str:
    """The prompt for a text in a language, from prompts by canonical code.

    Other languages get the default prompt. Without one, a doubtful language gets the English or the first prompt.

    Raises:
        LanguageError: The language is unknown or has no prompt, and there is no default prompt.
    """
    if isinstance(language, Unidentified):
        found = identify([language.text], tuple(key for key in prompts if key != "default"))[0].language
        return next(prompts[key] for key in (found, "default", "eng-Latn", *prompts) if key in prompts)
    if language is not None and (known := match(language, tuple(prompts))) in prompts:
        return prompts[known]
    if "default" in prompts:
        return prompts["default"]
    raise LanguageError(
        f"There is no prompt in {language or 'the unknown language of a text'}; "
        f"there is one in {', '.join(sorted(prompts))}. The English one works for every language."
    )


SLOT = "[TEXT]"
"""Place of the text in a prompt that surrounds it; any other prompt precedes the text."""
_SIDE = "\x1d"
"""Delimiter of the side in a prompt: a control character that does not occur in prompts."""

TEMPLATES: dict[str, str] = tomllib.loads(files(__package__).joinpath("templates.toml").read_text(encoding="utf-8"))
"""PromptEOL's template by canonical language code. Each ends in the quote whose hidden state is the text's vector."""
ENGLISH = TEMPLATES["eng-Latn"]


def prompted(prompt: str, text: str) -> str:
    """The text in its prompt, at ``[TEXT]`` or else after the prompt; the text itself is not changed."""
    return prompt.replace(SLOT, text, 1) if SLOT in prompt else prompt + text


def with_side(side: str, prompt: str) -> str:
    """A prompt that carries the side, ``query`` or ``document``, of its texts; ``""`` means no side."""
    return f"{_SIDE}{side}{_SIDE}{prompt}" if side else prompt


def split_side(prompt: str) -> tuple[str, str]:
    """The inverse of :func:`with_side`."""
    if not prompt.startswith(_SIDE):
        return "", prompt
    _, side, plain = prompt.split(_SIDE, 2)
    return side, plain

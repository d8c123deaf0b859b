"""Prompts that surround a text, and PromptEOL's template in many languages, which is in ``templates.toml``."""

import tomllib
from importlib.resources import files

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
    """A prompt that carries the side, ``query`` or ``document``, of its texts; ``""`` is no side."""
    return f"{_SIDE}{side}{_SIDE}{prompt}" if side else prompt


def split_side(prompt: str) -> tuple[str, str]:
    """The inverse of :func:`with_side`."""
    if not prompt.startswith(_SIDE):
        return "", prompt
    _, side, plain = prompt.split(_SIDE, 2)
    return side, plain

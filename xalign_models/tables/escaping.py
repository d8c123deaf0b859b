"""Escaping of untrusted names from results, cards and files for display."""

import html
import re
from json import dumps
from typing import Literal

_PROPERTY = str.maketrans({"%": "%25", ":": "%3A", ",": "%2C"})
"""Characters that end a property of a GitHub workflow command, and their escapes; its message escapes % alone."""

_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?( [a-z]{2,3}-[A-Z][a-z]{3})?( \[[-+]?[\d.,]+, [-+]?[\d.,]+\])?")
"""A number, and a language and an interval behind it, as tables show gains; none of them is a formula."""
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]")

Form = Literal["terminal", "html", "markdown", "github", "property", "csv", "json"]


def escape(text: str, form: Form = "terminal") -> str:
    r"""``text`` on one line, without active characters.

    Characters that do not print (control, bidirectional, zero-width, line separators, lone surrogates, private use)
    become ``\x1b``, ``\u202e`` and the like in every form. Letters of all scripts stay.

    Args:
        text: A name, a subset, a message.
        form: ``terminal`` adds nothing; ``html`` escapes markup, for XML and attributes too; ``markdown`` makes a code
            span, in which nothing is markup, that a table's cell may hold; ``github`` is for the message of a workflow
            command, and ``property`` for its title; ``csv`` puts an apostrophe before what a spreadsheet would take for
            a formula, numbers and gains excepted; ``json`` is for text that is JSON already, whose line breaks stay.
    """
    if form == "json":
        return re.sub(r"[^\n]", lambda match: match[0] if match[0].isprintable() else dumps(match[0])[1:-1], text)
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    match form:
        case "html":
            return html.escape(shown)
        case "markdown":
            return f"`{shown.replace('`', chr(92) + 'x60').replace('|', chr(92) + 'x7c')}`" if shown else ""
        case "github":
            return shown.replace("%", "%25")
        case "property":
            return shown.translate(_PROPERTY)
        case "csv":
            return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.fullmatch(shown) else shown
    return shown

"""Names of models and texts that only a file gives: claims, which xalign does not use until the user names them."""

import os
from contextlib import suppress
from hashlib import sha256

from xalign_models.errors import ModelError
from xalign_models.paths import cache_dir

ALLOWED = "XALIGN_ALLOW"
"""Variable with the names that files may use, with commas between."""


class Claim(str):
    """A directory, hub id or server of a model, or a text, as a file names it: the file's author chose it."""

    __slots__ = ()


def named(text: str) -> str:
    """The text, if the user named it; code that opens a model or sends it texts calls this first.

    A claim counts as named by the user if ``$XALIGN_ALLOW`` has it, or if the user gave the same text to an
    earlier command or call on this machine. The cache remembers these by a digest.

    Raises:
        ModelError: Only a file names it.

    Examples:
        >>> from xalign_models.claims import Claim, named
        >>> named("org/my-model"), named(Claim("org/my-model"))
        ('org/my-model', 'org/my-model')
    """
    memory = cache_dir() / "named" / sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if not isinstance(text, Claim):
        with suppress(OSError):
            memory.parent.mkdir(parents=True, exist_ok=True)
            memory.touch()
    elif text not in os.environ.get(ALLOWED, "").split(",") and not memory.is_file():
        raise ModelError(
            f"A file names {text!r:.200}, and you have not: it is not opened and gets nothing. "
            f"To allow it, add it to {ALLOWED}."
        )
    return str(text)

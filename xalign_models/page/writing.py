"""The board as a single page that opens from a file, without requests to any host and safe from hostile names."""

import base64
import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from xalign_models.atlas import Atlas
from xalign_models.errors import ResultsError
from xalign_models.files import read_bytes
from xalign_models.page.gathering import page_data
from xalign_models.page.packing import deflated
from xalign_models.paths import atomic_write_text
from xalign_models.results.reading import Results
from xalign_models.tables.escaping import escape

SCRIPTS = ("bundle/vendor", "data", "parts", "tables", "charts", "items", "choosing", "atlas", "app")
"""Scripts in order: libraries, data, display."""
_TITLE = b"<title>xalign board</title>"  # of a page that may be replaced


def write_page(
    results: Results,
    folder: Path,
    describe: Mapping[str, Mapping[str, Any]] | None = None,
    models: Collection[str] | None = None,
    tasks: Collection[str] | None = None,
    atlas: Atlas | None = None,
) -> Path:
    """Write ``<folder>/index.html``.

    Args:
        results: From :func:`xalign_models.results.reading.read_results`.
        folder: Created if missing.
        describe: Facts by task: ``type``, ``domains``, ``description``, ``reference``.
        models: Names, with or without ``xalign/``, directories or hub ids; None for all.
        tasks: Names; None for all.
        atlas: Published scores to show beside the board and to choose models by; None for none.

    Returns:
        The page.

    Raises:
        ResultsError: There is no readable result, a name has none, or the folder has another page or cannot be written.
    """
    path = folder / "index.html"
    if os.path.lexists(path) and _TITLE not in read_bytes(path)[:4096]:
        raise ResultsError(f"{path} exists and is not a board of xalign; choose another folder.")
    page = render(page_data(results, describe, models, tasks, atlas))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, page)
    except OSError as error:
        raise ResultsError(f"Cannot write {path}: {error.strerror}; choose another folder.") from None
    return path


def render(data: Mapping[str, Any]) -> str:
    """The whole page. Its policy admits only the scripts below, by their digests, and no connection."""
    scripts = [text_of(f"{name}.js") for name in SCRIPTS]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    plain = {key: value for key, value in data.items() if key != "packed"}
    packed = {"data": deflated([json.dumps(plain, separators=(",", ":")).encode()]), **data["packed"]}
    parts = {
        "policy": f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:",
        "style": text_of("page.css"),
        "licences": text_of("bundle/LICENSES.txt"),
        "packed": "".join(
            f'<script type="application/octet-stream" id="{name}">{text}</script>\n' for name, text in packed.items()
        ),
        "scripts": "".join(f"<script>{script}</script>\n" for script in scripts),
    }
    return filled("page.html", parts)


def text_of(name: str) -> str:
    """The text of a file of the package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """A template, a file of the package, with its parts."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], text_of(template))


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], box: str) -> str:
    """An HTML table in an element of the class ``box``; every text is escaped, and None is an empty cell."""
    texts = [["" if cell is None else escape(str(cell), "html") for cell in row] for row in rows]
    head = "".join(f'<th scope="col">{escape(name, "html")}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in line)}</tr>" for line in texts)
    return f'<div class="{box}" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

"""The tables of an audit as one page without scripts or connections."""

from __future__ import annotations

from xalign_models.index.auditing import Tables
from xalign_models.page.writing import sheet
from xalign_models.tables.escaping import escape


def page(source: str, tables: Tables) -> str:
    """The page, in HTML; every text in it is escaped, and its policy admits nothing but its style."""
    parts = []
    for title, rows in tables.items():
        heads = "".join(f"<th>{escape(str(name), 'html')}</th>" for name in (rows[0] if rows else ()))
        lines = ("".join(f"<td>{escape(_text(value), 'html')}</td>" for value in row.values()) for row in rows)
        body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
        parts.append(
            f"<h2>{escape(title, 'html')}</h2>\n<div class=scroller>{body if rows else '<p>None.</p>'}</div>\n"
        )
    name = escape(source.rpartition("@")[2], "html")  # without the password of a database
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{name}</title><style>{sheet()} body {{ padding: 1rem }}</style><h1>Audit of {name}</h1>\n{''.join(parts)}"
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)

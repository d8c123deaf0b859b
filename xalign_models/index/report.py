"""The tables of an audit as one page without scripts or connections."""

from xalign_models.index.auditing import Tables
from xalign_models.page.writing import sheet
from xalign_models.tables.escaping import escape

POLICY = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"


def page(source: str, tables: Tables) -> str:
    """The page, in HTML; every text in it is escaped, and its policy admits nothing but its style."""
    name = escape(source.rpartition("@")[2], "html")  # without the password of a database
    head = f"<!doctype html><html lang=en><meta charset=utf-8>{POLICY}<title>{name}</title><style>{sheet()}</style>"
    parts = [f"{head}<main style='padding: 1rem'><h1>Audit of {name}</h1>\n"]
    for title, rows in tables.items():
        parts.append(f"<h2>{escape(title, 'html')}</h2>\n<div class=scroller><table>{'' if rows else 'None.'}")
        lines = [("th", [*(rows[0] if rows else ())]), *(("td", [*row.values()]) for row in rows)]
        for tag, cells in lines:
            texts = ("" if cell is None else escape(str(cell), "html") for cell in cells)
            parts.append(f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>\n")
        parts.append("</table></div>\n")
    return "".join(parts)

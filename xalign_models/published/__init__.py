"""The published numbers of papers: a CSV file per table, described in ``index.json`` and ``README.md``."""

from xalign_models.published.reading import FOLDER, Published, published_on, published_table

__all__ = ["FOLDER", "Published", "published_on", "published_table"]

"""The board as a page: :func:`write_page`."""

from xalign_models.page.writing import write_page

__all__ = ["write_page"]

"""Product search in seven locales: reading the files, and the mteb tasks on them."""

from __future__ import annotations

from tasks.product_search.fields import LOCALES
from tasks.product_search.loader import Locale, fingerprint, load
from tasks.product_search.rows import rows
from tasks.product_search.task import LazRetrieval, ProductSearch, ProductSearchStandIn

__all__ = [
    "LOCALES",
    "LazRetrieval",
    "Locale",
    "ProductSearch",
    "ProductSearchStandIn",
    "fingerprint",
    "load",
    "rows",
]

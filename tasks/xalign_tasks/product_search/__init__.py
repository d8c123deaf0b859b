"""Product search in seven locales: the layout of the files, and the mteb tasks on them."""

from xalign_tasks.product_search.layout import LOCALES, Locale, fingerprint, load
from xalign_tasks.product_search.task import LazRetrieval, ProductSearch, ProductSearchStandIn

__all__ = ["LOCALES", "LazRetrieval", "Locale", "ProductSearch", "ProductSearchStandIn", "fingerprint", "load"]

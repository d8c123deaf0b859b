"""The atlas: public results of multilingual embedding models by language, and statistics of them.

Modules depend on each other in one direction: ``imported`` reads the results, ``derive`` condenses them by language,
``table`` reads that condensed table (it comes with the package), ``statistics`` and ``choose`` work on it.
"""

from xalign_models.atlas.table import KINDS, Atlas, Column, PublishedModel, load_atlas

__all__ = ["KINDS", "Atlas", "Column", "PublishedModel", "load_atlas"]

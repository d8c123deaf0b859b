"""The atlas: the public results of multilingual embedding models by language, and what they say of alignment.

The arrows point one way: ``imported`` reads the public results, ``derive`` condenses them to means by language,
``table`` reads that condensed table (it comes with the package), ``statistics`` and ``choose`` work on it.
"""

from xalign_models.atlas.table import KINDS, Atlas, Column, PublishedModel, load_atlas

__all__ = ["KINDS", "Atlas", "Column", "PublishedModel", "load_atlas"]

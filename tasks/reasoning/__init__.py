"""Reasoning tasks of models that write: MGSM and X-CSQA, read and scored; `xalign analyse` runs them."""

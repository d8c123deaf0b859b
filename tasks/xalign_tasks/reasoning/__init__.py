"""Reasoning tasks for generative models: MGSM and X-CSQA; `xalign analyse` runs them."""

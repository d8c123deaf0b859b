"""The import paths of saved LUSIFER models, which are a file format."""

from xalign_models.training.lusifer.module import Lusifer

__all__ = ["Lusifer"]

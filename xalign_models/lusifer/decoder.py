"""The import paths of saved LUSIFER models, which are a file format."""

from xalign_models.training.lusifer.decoder import Bidirectional

__all__ = ["Bidirectional"]

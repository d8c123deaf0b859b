"""The import path of saved LiRA models, which is a file format."""

from xalign_models.training.lira.module import LiRA

__all__ = ["LiRA"]

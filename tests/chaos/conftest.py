"""The fixtures of other folders that the commands need."""

from tests.xalign_models.assets.conftest import cache, index, register, toy

__all__ = ["cache", "index", "register", "toy"]

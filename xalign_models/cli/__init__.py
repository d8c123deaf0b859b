"""The command line: ``xalign``."""

from xalign_models.cli.app import main

__all__ = ["main"]

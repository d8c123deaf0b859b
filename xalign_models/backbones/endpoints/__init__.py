"""Backbones behind a server: one file per protocol, and what the protocols share."""

"""Backbones behind a server: one module per protocol, and their shared base class, client and limits."""

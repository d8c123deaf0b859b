"""Backbones turn texts into raw vectors, before any alignment."""

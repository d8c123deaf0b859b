"""Backbones: what turns a text into a raw vector, before any alignment."""

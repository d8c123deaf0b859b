"""Stored vectors: mapping by an alignment, import and export."""

"""Recommends an alignment for a backbone by held-out text, and states its costs."""

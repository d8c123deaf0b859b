"""Recommends an alignment for a backbone by held-out text, and says what it costs."""

"""Ranks of counterparts: of one pair, of all pairs of many languages, resumable."""

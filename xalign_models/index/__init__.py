"""Audits an existing index of vectors, and writes aligned vectors next to the old ones: one file per store."""

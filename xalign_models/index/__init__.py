"""Audits an existing index of vectors, and writes aligned vectors beside the old ones: one file per store."""

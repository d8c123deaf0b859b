"""Vectors that lie in files: read as a backbone, mapped by an alignment, moved into the store and out of it."""

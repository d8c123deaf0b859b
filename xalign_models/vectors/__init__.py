"""Files of vectors: reading, mapping by an alignment, import and export."""

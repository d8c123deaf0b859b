"""Files of vectors: reading them, mapping them by an alignment, importing and exporting them."""

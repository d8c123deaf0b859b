"""Maps without torch: a module to copy into any service, and the reader of saved models built on it."""

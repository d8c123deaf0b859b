"""Whether two ways to serve a model give the same vectors, and if not, why."""

"""Training with sentence-transformers' trainer: it resumes after an interruption and records its settings."""

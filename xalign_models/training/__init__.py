"""Trainings by sentence-transformers' trainer: they resume after an interruption and record how they were made."""

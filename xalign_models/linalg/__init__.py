"""Shared linear algebra: array types, solvers of linear maps, and products by oneDNN."""

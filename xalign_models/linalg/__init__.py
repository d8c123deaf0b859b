"""Linear algebra that the other packages share: array types, solvers of linear maps, oneDNN's products."""

"""Scoring models, keeping the results, and reading them: tables and the regression gate."""

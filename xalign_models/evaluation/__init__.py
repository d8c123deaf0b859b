"""Scoring models: runs, plans, audits, and publication of their results."""

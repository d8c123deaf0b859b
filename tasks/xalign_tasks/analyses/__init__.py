"""Analyses: tables and figures beyond single scores. Related analyses share a file; one place registers all."""

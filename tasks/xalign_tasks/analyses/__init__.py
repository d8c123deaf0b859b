"""Analyses: tables and figures beyond single scores. One analysis is one file, registered in one place."""

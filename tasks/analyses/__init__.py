"""Analyses: what tables and figures show that one score cannot. One analysis, one file, registered in one place."""

"""Boards of results: the leaderboard, and the regression gate with its verdicts and reports."""

"""Ranks of counterparts and targets among candidates, and measures computed from them."""

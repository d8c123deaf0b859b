"""Ranks of counterparts and targets among candidates, and the measures that follow from them."""

"""Models: cards, names, identities, and how they are built, saved and registered."""

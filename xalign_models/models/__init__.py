"""Models: their names and identities, and how they are built, saved and registered."""

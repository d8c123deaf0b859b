"""Text generation: translations by language and translation models, and scores of translations."""

"""A server of OpenAI's embeddings protocol before any model, which aligns vectors by the language of each text."""

"""The import path of saved LiRA models, which is a file format."""

"""The import paths of saved LUSIFER models, which are a file format."""

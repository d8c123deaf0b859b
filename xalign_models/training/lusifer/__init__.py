"""LUSIFER: a multilingual encoder, a connector, and an English language model that reads the encoder's states."""

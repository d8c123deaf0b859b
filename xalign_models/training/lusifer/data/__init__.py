"""Text to train on: English sets, on this machine or on the hub, without what the evaluation sets hold."""

"""Training text: English sets, local or on the hub, without the texts of evaluation sets."""

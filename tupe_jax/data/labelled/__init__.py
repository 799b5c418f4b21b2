"""Labelled examples: read them from files or TFDS, and encode them."""

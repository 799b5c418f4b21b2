"""From text to token sequences, deterministically; and labelled data."""

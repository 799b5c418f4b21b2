"""Checkpoints: written atomically, verified when read."""

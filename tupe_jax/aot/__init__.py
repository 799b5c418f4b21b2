"""Ahead-of-time compilation for a TPU or GPU target, on a machine that has none."""

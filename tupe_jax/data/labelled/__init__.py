"""Labelled examples: files in, encoded sentence pairs out."""

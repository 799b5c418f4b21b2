"""Helpers that any other folder may use."""

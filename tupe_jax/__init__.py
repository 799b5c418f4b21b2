"""Untied positional encoding (TUPE) in JAX, and a laboratory of positional encodings."""

"""Corpora as SeqIO data sources: files of text, JSON Lines or Parquet, TFDS, the built-in one.

A source yields documents. A document is a string of lines joined by newlines. Every source has the
splits `train` and `validation`, divided by `splits.is_held_out`. This also holds for TFDS data sets
that ship with other splits: only their `train` split is read.
"""

from tupe_jax.data.pretraining.sources.base import TRAIN, VALIDATION, DocumentSource
from tupe_jax.data.pretraining.sources.specs import parse_source

__all__ = ["TRAIN", "VALIDATION", "DocumentSource", "parse_source"]

"""Symmetry and locality of position-only attention of several models in one table.

The first columns are those of Chen et al. (2023), in percent: metrics of attention among identical
words, of the mean over all layers and heads. Mirror symmetry and direction follow, because the
published symmetry does not detect one-sided attention.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import ModelConfig
from tupe_jax.lab.position_attention import attention_among_identical_words, choose_words
from tupe_jax.model.heads import MaskedLM

COLUMNS = ("symmetry", "locality", "mirror_symmetry", "direction")


@dataclass(frozen=True)
class ComparisonRow:
    """The measurements of one model."""

    name: str
    encoding: str
    layers: int
    measures: Mapping[str, float]
    """Every metric."""


def measure(
    name: str, model: MaskedLM, ordinary_ids: NDArray[np.int32], *, length: int, words: int
) -> ComparisonRow:
    """Measure `length` positions of a model with `words` of the ordinary tokens."""
    probing = choose_words(ordinary_ids, words)
    found = attention_among_identical_words(model, length, probing)
    return ComparisonRow(
        name, _encoding(model.config), model.config.num_layers, found.measures_of_mean()
    )


def _encoding(config: ModelConfig) -> str:
    parts = config.position.absolute, config.position.relative
    return " + ".join(part for part in parts if part != "none") or "none"


def as_table(lines: Sequence[ComparisonRow], *, length: int, words: int) -> str:
    """A table with one row for each model."""
    names = [column.replace("_", " ") for column in COLUMNS]
    width = max(len("model"), *(len(line.name) for line in lines))
    encodings = max(len("positions"), *(len(line.encoding) for line in lines))
    header = f"{'model':{width}}  {'positions':{encodings}}  layers"
    rows = [header + "".join(f"  {name:>15}" for name in names)]
    for line in lines:
        numbers = (f"  {100 * line.measures[column]:15.1f}" for column in COLUMNS)
        row = f"{line.name:{width}}  {line.encoding:{encodings}}  {line.layers:6}"
        rows.append(row + "".join(numbers))
    about = (
        f"Attention among identical words in percent, n = {length} positions without [CLS]: the "
        f"mean over {words} words, all layers and heads"
    )
    return "\n".join([about, *rows])

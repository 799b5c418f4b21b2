"""Positional encodings: one registry, one frame, no class per combination.

    encoding.py    what an encoding can add, and the registry
    absolute.py    learned, sinusoidal, untied (TUPE), mixed (BERT-A^d)
    relative.py    T5, ALiBi, attenuated, Shaw, DeBERTa, Transformer-XL, RoPE
    distances.py   from a function of j - i to a matrix over (i, j)
    modules.py     the weights in the model, and [CLS] untied from them

Names follow the TUPE paper (Ke, He, Liu, 2021): p is a position embedding, U^Q and U^K its
projections, b the relative bias, theta_1 and theta_2 the constants that untie [CLS].
"""

from tupe_jax.model.layers import Weight
from tupe_jax.model.positions import absolute, relative  # importing them fills the registry
from tupe_jax.model.positions.encoding import (
    ABSOLUTE,
    RELATIVE,
    Encoding,
    absolute_encoding,
    encodings,
    logit_scale,
    longest_input,
    padding_matters,
    relative_encoding,
)
from tupe_jax.model.positions.modules import PARTS, LayerPositions, SharedPositions, reset, sum_of

__all__ = [
    "ABSOLUTE",
    "PARTS",
    "RELATIVE",
    "Encoding",
    "LayerPositions",
    "SharedPositions",
    "Weight",
    "absolute",
    "absolute_encoding",
    "encodings",
    "logit_scale",
    "longest_input",
    "padding_matters",
    "relative",
    "relative_encoding",
    "reset",
    "sum_of",
]

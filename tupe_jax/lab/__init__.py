"""The laboratory: what positions have learned, measured, probed and compared.

`metrics.py` has numbers for one matrix of attention weights: locality, symmetry and others.
"""

from tupe_jax.lab.metrics import (
    METRICS,
    Metric,
    direction,
    effective_rank,
    entropy,
    locality,
    mirror_symmetry,
    monotonicity,
    symmetry,
    translation_invariance,
)

__all__ = [
    "METRICS",
    "Metric",
    "direction",
    "effective_rank",
    "entropy",
    "locality",
    "mirror_symmetry",
    "monotonicity",
    "symmetry",
    "translation_invariance",
]

"""A study to start your own from: `configs/recipes/studies/tiny.py` with other variants."""

from collections.abc import Sequence

from tupe_jax.ablation.config import AblationConfig, Variant, ablation_config
from tupe_jax.config.loading import recipe


def tiny_study(variants: Sequence[Variant]) -> AblationConfig:
    """Small models on the built-in corpus; minutes per run on a CPU."""
    values = recipe("studies/tiny")
    values.variants = tuple(variants)
    return ablation_config(values)

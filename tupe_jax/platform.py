"""Settings that follow the hardware: `auto` becomes what is best on a platform.

The platform is that of the devices a program is compiled for, which need not be this machine's.
"""

import dataclasses

import jax

from tupe_jax.config import ModelConfig
from tupe_jax.kernels.choice import Choice, choose
from tupe_jax.model.positions import encodings


def resolve(config: ModelConfig, platform: str) -> ModelConfig:
    """The config with every `auto` decided for `cpu`, `gpu` or `tpu`, as JAX names them."""
    if config.layer_loop == "auto":
        # Unrolled layers run faster on CPUs. Elsewhere compiling one layer, not all, counts.
        config = dataclasses.replace(config, layer_loop="unroll" if platform == "cpu" else "scan")
    attention = attention_choice(config, platform).implementation
    return dataclasses.replace(config, attention_implementation=attention)


def resolved_here(config: ModelConfig) -> ModelConfig:
    """The config of a model that runs in this process, unless it was resolved for other devices."""
    if "auto" in (config.layer_loop, config.attention_implementation):
        return resolve(config, jax.default_backend())
    return config


def attention_choice(config: ModelConfig, platform: str) -> Choice:
    """Which implementation of attention a model has on a platform, and why."""
    has_content_scores = any(encoding.scores for encoding in encodings(config).values())
    return choose(
        config.attention_implementation,
        platform,
        head_size=config.head_size,
        dtype=config.dtype,
        attention_dropout=config.attention_dropout,
        content_scores_of=config.position.relative if has_content_scores else None,
    )

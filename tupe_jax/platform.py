"""Settings that follow the hardware: `auto` becomes what is best on a platform.

The platform is that of the devices a program is compiled for, which need not be this machine's.
"""

import dataclasses

from tupe_jax.config import ModelConfig


def resolve(config: ModelConfig, platform: str) -> ModelConfig:
    """The config with every `auto` decided for `cpu`, `gpu` or `tpu`, as JAX names them."""
    if config.layer_loop == "auto":
        # Unrolled layers run faster on CPUs. Elsewhere compiling one layer, not all, counts.
        config = dataclasses.replace(config, layer_loop="unroll" if platform == "cpu" else "scan")
    return config

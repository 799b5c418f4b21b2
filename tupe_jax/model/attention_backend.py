"""Settings that follow the hardware: what `auto` means on a platform.

The platform is that of the devices a program is compiled for, which need not be this machine's. A
config keeps its `auto`: a model trained on TPUs runs elsewhere too.
"""

import jax

from tupe_jax.config.schema import ModelConfig
from tupe_jax.kernels.dispatch import Choice, choose
from tupe_jax.model.positions import encodings


def platform_here() -> str:
    """`cpu`, `gpu` or `tpu`: of the mesh in context (`jax.set_mesh`), else of this process."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else str(device.platform)


def unrolls_layers(config: ModelConfig, platform: str) -> bool:
    """Unrolled layers run faster on CPUs. Elsewhere compiling one layer, not all, counts."""
    return config.layer_loop == "unroll" or (config.layer_loop == "auto" and platform == "cpu")


def attention_choice(config: ModelConfig, platform: str, length: int) -> Choice:
    """Which implementation of attention a model has for rows of this length, and why."""
    chosen = {
        f"position.{part}={getattr(config.position, part)!r}": encoding
        for part, encoding in encodings(config).items()
    }
    with_words = [name for name, encoding in chosen.items() if encoding.scores]
    if config.segment_attention:
        with_words.append("model.segment_attention=True")
    return choose(
        config.attention_implementation,
        platform,
        length,
        num_heads=config.num_heads,
        head_size=config.head_size,
        dtype=config.dtype,
        attention_dropout=config.attention_dropout,
        has_bias=any(encoding.has_bias for encoding in chosen.values()),
        content_scores_of=next(iter(with_words), None),
        formless_bias_of=next((name for name, e in chosen.items() if e.bias), None),
    )

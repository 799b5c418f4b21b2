"""Measurements of an encoder in full float32: what it attends to by positions alone.

Position-only attention is measured in two ways: by probing, and from the position biases.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from tupe_jax.model.encoder import Encoder
from tupe_jax.model.positions import sum_of

P = ParamSpec("P")
R = TypeVar("R")

SHOWN_POSITIONS = 32
"""As many as can be told apart in a picture."""


def full_precision(measure: Callable[P, R]) -> Callable[P, R]:
    """Let all products of float32 matrices in a function be float32 products.

    By default JAX multiplies them in bfloat16 on TPUs and in TF32 on recent GPUs. Numbers that
    should be equal then differ by more than what is measured.
    """

    @functools.wraps(measure)
    def measured(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"):
            return measure(*args, **kwargs)

    return measured


@full_precision
@nnx.jit(static_argnames="length")
def identical_words_LxHxSxS(encoder: Encoder, words_W: jax.Array, length: int) -> jax.Array:
    """Attention in rows of one repeated word, the mean over the words; float32.

    Identical words tell positions apart by nothing but the encoding. If all of it is bias, the
    layers keep the words identical, and this is the softmax of the bias in every layer.
    """

    def add(total: jax.Array, word: jax.Array) -> tuple[jax.Array, None]:
        row_1xS = jnp.full((1, length), word)
        return total + encoder.attention_weights(row_1xS)[:, 0], None

    config = encoder.config
    nothing = jnp.zeros((config.num_layers, config.num_heads, length, length))
    # One word at a time: what all words of a base model attend to would be gigabytes.
    return jax.lax.scan(add, nothing, words_W)[0] / words_W.size


@full_precision
@nnx.jit(static_argnames="length")
def bias_LxHxSxS(encoder: Encoder, length: int) -> jax.Array | None:
    """The position bias of each layer, [1, H, S, S] if all share it; None if there is no bias."""
    shared_HxSxS = encoder.positions.bias_HxSxS(length)
    graph, stacked = nnx.split(encoder.layers.attention.positions)

    def own(weights: Any) -> jax.Array | None:
        bias_HxSxS: jax.Array | None = nnx.merge(graph, weights).bias_HxSxS(length)
        return bias_HxSxS

    shared = None if shared_HxSxS is None else shared_HxSxS[None]
    # Without weights of their own the layers have no bias of their own, and nothing to map over.
    by_layer = jax.vmap(own)(stacked) if jax.tree.leaves(stacked) else None
    return sum_of(bias for bias in (shared, by_layer) if bias is not None)

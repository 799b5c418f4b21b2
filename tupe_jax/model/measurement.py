"""Position-only attention of an encoder, measured in full float32.

Position-only attention is measured in two ways: by probing, and from the position biases.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from tupe_jax.model.encoder import Encoder
from tupe_jax.model.positions import PARTS, sum_of

P = ParamSpec("P")
R = TypeVar("R")

SHOWN_POSITIONS = 32
"""As many as can be distinguished in a plot."""


def full_precision(measure: Callable[P, R]) -> Callable[P, R]:
    """Compute all products of float32 matrices in a function in float32.

    By default JAX multiplies them in bfloat16 on TPUs and in TF32 on recent GPUs. Numbers that
    should be equal would then differ by more than the effect that is measured.
    """

    @functools.wraps(measure)
    def measured(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"):
            return measure(*args, **kwargs)

    return measured


@full_precision
@nnx.jit(static_argnames="length")
def identical_tokens_LxHxSxS(encoder: Encoder, tokens_N: jax.Array, length: int) -> jax.Array:
    """Attention in sequences of one repeated token, the mean over the tokens; float32.

    Only the encoding distinguishes the positions of identical tokens. If the encoding is a bias,
    the hidden states stay identical, and this is the softmax of the bias in every layer.
    """

    def add(total: jax.Array, token: jax.Array) -> tuple[jax.Array, None]:
        tokens_1xS = jnp.full((1, length), token)
        return total + encoder.attention_weights(tokens_1xS)[:, 0], None

    config = encoder.config
    nothing = jnp.zeros((config.num_layers, config.num_heads, length, length))
    # One token at a time: the weights for all tokens of a base model would take gigabytes.
    return jax.lax.scan(add, nothing, tokens_N)[0] / tokens_N.size


@full_precision
@nnx.jit(static_argnames=("length", "parts"))
def bias_LxHxSxS(encoder: Encoder, length: int, parts: Sequence[str] = PARTS) -> jax.Array | None:
    """The position bias of each layer, [1, H, S, S] if all share it; None if there is no bias."""
    shared_HxSxS = encoder.positions.bias_HxSxS(length, parts)
    graph, stacked = nnx.split(encoder.layers.attention.positions)

    def own(weights: Any) -> jax.Array | None:
        bias_HxSxS: jax.Array | None = nnx.merge(graph, weights).bias_HxSxS(length, parts)
        return bias_HxSxS

    shared = None if shared_HxSxS is None else shared_HxSxS[None]
    # Without layer weights there is no bias per layer and nothing to map over.
    by_layer = jax.vmap(own)(stacked) if jax.tree.leaves(stacked) else None
    return sum_of(bias for bias in (shared, by_layer) if bias is not None)


def bias_sizes(encoder: Encoder, length: int) -> dict[str, jax.Array]:
    """How much each head distinguishes positions, [H] for each part of the encoding with a bias.

    The root mean square of a bias about the mean of its row, without the row and the column of
    [CLS]: softmax ignores what all logits of a query share. Over layers with their own biases
    it is also the root mean square.
    """
    sizes = {}
    for part in PARTS:
        bias = bias_LxHxSxS(encoder, length, (part,))
        if bias is not None:
            variance_LxHxS = bias[:, :, 1:, 1:].var(-1)
            sizes[part] = jnp.sqrt(variance_LxHxS.mean((0, 2)))
    return sizes

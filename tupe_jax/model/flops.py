"""FLOPs of the model, counted from its shapes: the minimum for any implementation.

Matrix products only, a multiply-add being two operations. Softmax, norms, activations, dropout and
RoPE's rotations are left out, as is usual: on accelerators other units compute them. Neither
recomputed activations (`remat`) nor padding to tiles count, so a fraction of the peak computed from
these numbers is model FLOPs utilization (MFU). The position terms are counted in the functions of
the chosen encodings, so user-defined encodings are counted as well. In a layer with an attention
window only the pairs of tokens inside the window count.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.extend.core import jaxprs_in_params

from tupe_jax.config.schema import ModelConfig
from tupe_jax.kernels.window import pairs_in_window
from tupe_jax.model.positions import LayerPositions, SharedPositions, encodings


def flops_per_token(config: ModelConfig, length: int, scored_share: float, *, rows: int) -> float:
    """Forward FLOPs per token of a pass over `rows` sequences of `length` tokens.

    Masked tokens are predicted at a fraction `scored_share` of the positions. `rows` matters
    little: terms that depend on positions alone are computed once per pass.
    """
    D, E, V = config.hidden_size, config.output_size, config.vocab_size
    head = 2 * D * E * config.masked_word_transform + 2 * E * V
    projection = 2 * config.word_size * D if config.embedding_size else 0
    shared = _position_flops(config, length).per_pass / (rows * length)
    layers = sum(_layer(config, length, window) for window in config.windows)
    detection = 2 * D * (D + 1) if config.replaced_token_head else 0
    next_sentence = 2 * D * (D + 2) / length if config.next_sentence_head else 0  # once a sequence
    return projection + layers + scored_share * head + detection + next_sentence + shared


def training_flops_per_token(
    config: ModelConfig, length: int, scored_share: float, *, rows: int
) -> float:
    """Forward and backward: each product has two more, for the gradients of its factors."""
    return 3 * flops_per_token(config, length, scored_share, rows=rows)


def recomputed_flops_per_token(config: ModelConfig, length: int, *, by_kernel: bool) -> float:
    """Products that the backward pass recomputes under `model.remat`; no part of MFU.

    Those that attention kernels repeat inside their backward pass are not counted.

    Attention `by_kernel` is no matrix product to JAX, so "dots" does not keep its output.
    """
    attention = sum(_scores_and_values(config, length, window) for window in config.windows)
    again = {
        "none": 0.0,
        "dots": attention if by_kernel else 0.0,
        "projections": attention,
        "full": sum(_layer(config, length, window) for window in config.windows),
    }
    return again[config.remat]


def attention_flops_per_token(config: ModelConfig, length: int, window: int = 0) -> float:
    """Forward FLOPs per token of one layer's attention, its projections included.

    `window` is that of the layer, one of `config.windows`.
    """
    D = config.hidden_size
    projections = 2 * D * (3 * D) + 2 * D * D
    return projections + _scores_and_values(config, length, window)


def _scores_and_values(config: ModelConfig, length: int, window: int) -> float:
    """FLOPs per token of the products over pairs of tokens, including position terms."""
    of_a_pair = 2 * (2 * config.hidden_size) + _position_flops(config, length).per_token / length
    return of_a_pair * pairs_in_window(length, window) / length


def _layer(config: ModelConfig, length: int, window: int) -> float:
    """Per token."""
    products = 3 if config.gated_mlp else 2
    mlp = products * (2 * config.hidden_size * config.mlp_size)
    return attention_flops_per_token(config, length, window) + mlp


@dataclass(frozen=True)
class _PositionFlops:
    """Forward FLOPs of the position terms, counted in the functions of the chosen encodings."""

    per_token: float
    """In each layer: the terms that need the tokens."""
    per_pass: float
    """In all layers together: what depends on positions alone."""


def _position_flops(config: ModelConfig, length: int) -> _PositionFlops:
    shared, shared_weights = nnx.split(
        nnx.eval_shape(lambda: SharedPositions(config, rngs=nnx.Rngs(0)))
    )
    layer, layer_weights = nnx.split(
        nnx.eval_shape(lambda: LayerPositions(config, rngs=nnx.Rngs(0)))
    )

    def once_per_pass(weights: Any) -> Any:
        positions = nnx.merge(shared, weights)
        return positions.once(length), positions.input_SxD(length), positions.bias_HxSxS(length)

    def in_a_layer(weights: Any, once: Any, q: jax.Array, k: jax.Array) -> Any:
        positions = nnx.merge(layer, weights)
        q_and_k = positions.queries_keys(once, q, k)
        return q_and_k, positions.scores_BxHxSxS(once, q, k), positions.bias_HxSxS(length)

    once = jax.eval_shape(once_per_pass, shared_weights)[0]

    def of_a_layer(batch: int) -> int:
        shape_BxSxHxd = (batch, length, config.num_heads, config.head_size)
        q = jax.ShapeDtypeStruct(shape_BxSxHxd, jnp.dtype(config.dtype))
        return matrix_product_flops(in_a_layer, layer_weights, once, q, q)

    def once_per_pass_in_factors(weights: Any) -> Any:
        positions = nnx.merge(shared, weights)
        return positions.once(length), positions.input_SxD(length), positions.factored_bias(length)

    # A second sequence adds the terms that need its tokens, and nothing else.
    of_a_sequence = of_a_layer(2) - of_a_layer(1)
    without_tokens = of_a_layer(1) - of_a_sequence
    per_pass = matrix_product_flops(once_per_pass, shared_weights)
    over_pairs = 0
    if not any(encoding.bias for encoding in encodings(config).values()):  # these have no factors
        over_pairs = per_pass - matrix_product_flops(once_per_pass_in_factors, shared_weights)
    # Where all layers have a window, the bias is needed inside the widest one only.
    share = max(pairs_in_window(length, window) for window in config.windows) / length**2
    return _PositionFlops(
        per_token=of_a_sequence / length,
        per_pass=per_pass - (1 - share) * over_pairs + config.num_layers * without_tokens,
    )


def matrix_product_flops(function: Callable[..., Any], *arrays: Any) -> int:
    """FLOPs of all matrix products in a function of arrays, of which only the shapes are needed.

    Loops and inner functions are included. The sum of an elementwise product, as in
    `(q * r).sum(-1)`, is a matrix product as well.
    """
    return _flops_in(jax.make_jaxpr(function)(*arrays).jaxpr)


def _flops_in(jaxpr: Any) -> int:
    total = 0
    products = set()  # variables that hold elementwise products
    for equation in jaxpr.eqns:
        is_of_product = any(id(variable) in products for variable in equation.invars[:1])
        match equation.primitive.name:
            case "dot_general":
                (contracted, _), _ = equation.params["dimension_numbers"]
                terms = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
                total += 2 * terms * math.prod(equation.outvars[0].aval.shape)
            case "reduce_sum" if is_of_product:
                total += 2 * math.prod(equation.invars[0].aval.shape)
            case name if name == "mul" or (name == "convert_element_type" and is_of_product):
                products |= set(map(id, equation.outvars))
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(map(_flops_in, jaxprs_in_params(equation.params)))
    return total

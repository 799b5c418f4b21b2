"""Absolute encodings: functions of the position i of a token."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tupe_jax.config.schema import ModelConfig
from tupe_jax.model.layers import Weight, layer_norm, ones, zeros
from tupe_jax.model.positions.encoding import (
    Encoding,
    Weights,
    absolute_encoding,
    check_gain,
    logit_scale,
    relative_encoding,
)


@absolute_encoding("none")
@relative_encoding("none")
def none(config: ModelConfig) -> Encoding:
    """No positions: the encoder sees a bag of tokens."""
    return Encoding()


@absolute_encoding("added")
def added(config: ModelConfig) -> Encoding:
    """BERT: a learned p_i is added to the token embedding."""
    table = Weight((config.position.max_length, config.word_size), ("positions", "embed"))
    return Encoding(
        weights={"table": table},
        input=lambda weights, length: weights["table"][:length],
        longest=config.position.max_length,
    )


@absolute_encoding("sinusoidal")
def sinusoidal(config: ModelConfig) -> Encoding:
    """Vaswani et al., 2017: p_i,2m = sin(i / 10000^(2m/D)), p_i,2m+1 = cos of the same.

    They multiply the token embedding by sqrt(D); here p is divided by it. The LayerNorm after the
    sum makes both the same, and the token embedding is that of all other encodings.
    """

    def wave(weights: Weights, length: int) -> jax.Array:
        feature_D = np.arange(config.word_size)
        wavelength_D = 10000.0 ** (feature_D // 2 * 2 / config.word_size)
        angle_SxD = np.arange(length)[:, None] / wavelength_D
        p_SxD = np.where(feature_D % 2, np.cos(angle_SxD), np.sin(angle_SxD))
        return jnp.asarray(p_SxD / np.sqrt(config.word_size), jnp.float32)

    return Encoding(input=wave)


@absolute_encoding("untied", dot_products=1)
def untied(config: ModelConfig, untied_gain: float = 1.0) -> Encoding:
    """TUPE-A: v_ij = (p_i U^Q)(p_j U^K)^T / sqrt(2d), computed once and shared by all layers.

    v, theta included, is multiplied by the constant `untied_gain`.
    """
    check_gain("untied_gain", untied_gain)
    weights = _position_projections(config)
    if config.position.untie_cls:
        weights["p_theta_1"] = Weight((config.hidden_size,), ("embed",))
    scale = untied_gain * logit_scale(config)

    def products(weights: Weights, length: int) -> tuple[jax.Array, jax.Array]:
        q_SxHxd, k_SxHxd = _project_positions(config, weights, weights["table"][:length])
        return q_SxHxd * scale, k_SxHxd

    def theta(weights: Weights) -> tuple[jax.Array, jax.Array]:
        # p_theta_2 is the entry of [CLS] in the table: `reset` overwrites its other uses.
        p_theta_2xD = jnp.stack([weights["p_theta_1"], weights["table"][0]])
        q_2xHxd, k_2xHxd = _project_positions(config, weights, p_theta_2xD)
        theta_1, theta_2 = jnp.einsum("nhd,nhd->nh", q_2xHxd, k_2xHxd) * scale
        return theta_1, theta_2

    return Encoding(
        weights=weights,
        position_products=products,
        theta=theta,
        longest=config.position.max_length,
    )


@absolute_encoding("mixed", dot_products=3)
def mixed(config: ModelConfig) -> Encoding:
    """BERT-A^d: token-token, token-position, position-token and position-position terms per layer.

    Their sum is one product: (x_i W^Q + p_i U^Q)(x_j W^K + p_j U^K)^T / sqrt(4d).
    """

    def once(weights: Weights, length: int) -> tuple[jax.Array, jax.Array]:
        return _project_positions(config, weights, weights["table"][:length])

    def queries_keys(
        once: Any, weights: Weights, q: jax.Array, k: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        position_q, position_k = once
        return q + position_q.astype(q.dtype), k + position_k.astype(k.dtype)

    return Encoding(
        weights=_position_projections(config),
        once=once,
        queries_keys=queries_keys,
        longest=config.position.max_length,
    )


def _position_projections(config: ModelConfig) -> dict[str, Weight]:
    """The table of p, its LayerNorm, and U^Q, U^K with their biases."""
    D, H, d = config.hidden_size, config.num_heads, config.head_size
    return {
        "table": Weight((config.position.max_length, D), ("positions", "embed")),
        "norm_scale": Weight((D,), ("embed",), ones),
        "norm_bias": Weight((D,), ("embed",), zeros),
        "query_kernel": Weight((D, H, d), ("embed", "heads", "head_size")),
        "query_bias": Weight((H, d), ("heads", "head_size"), zeros),
        "key_kernel": Weight((D, H, d), ("embed", "heads", "head_size")),
        "key_bias": Weight((H, d), ("heads", "head_size"), zeros),
    }


def _project_positions(
    config: ModelConfig, weights: Weights, p_NxD: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """P U^Q and p U^K, [N, H, d] each, after the LayerNorm on p."""
    p_NxD = layer_norm(p_NxD, weights["norm_scale"], weights["norm_bias"], config.layer_norm_eps)
    return (
        jnp.tensordot(p_NxD, weights["query_kernel"], 1) + weights["query_bias"],
        jnp.tensordot(p_NxD, weights["key_kernel"], 1) + weights["key_bias"],
    )

"""Relative encodings: functions of the distance j - i of two tokens."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tupe_jax.config.schema import ModelConfig
from tupe_jax.config.validation import one_of
from tupe_jax.model.layers import Weight, zeros
from tupe_jax.model.positions.distances import (
    Ints,
    by_distance_to_pairs,
    distances,
    log_bucket,
    t5_bucket,
)
from tupe_jax.model.positions.encoding import Encoding, Weights, check_gain, relative_encoding
from tupe_jax.utils.errors import UserError


@relative_encoding("t5")
def t5(config: ModelConfig, t5_gain: float = 1.0) -> Encoding:
    """T5: b_{j-i}, one learned number per head and distance bucket, shared by all layers.

    b, theta included, is multiplied by the constant `t5_gain`. Adam moves a learned number by about
    the learning rate per update; a gain lets the bias grow faster than that.
    """
    check_gain("t5_gain", t5_gain)
    bins, farthest = config.position.relative_bins, config.position.max_distance
    if bins % 4 or farthest <= bins // 4:
        raise UserError(
            f"position.relative_bins={bins} must be a multiple of 4, and a quarter of it less than "
            f"position.max_distance={farthest}"
        )
    # The released model keeps theta in two further bins: the one T5 never uses, and one appended.
    rows = bins + 1 if config.position.untie_cls else bins

    def distance_bias(weights: Weights, distance_N: jax.Array) -> jax.Array:
        bucket_N = t5_bucket(distance_N, num_buckets=bins, max_distance=farthest)
        return t5_gain * weights["table"][bucket_N].T

    def theta(weights: Weights) -> tuple[jax.Array, jax.Array]:
        return t5_gain * weights["table"][bins // 2], t5_gain * weights["table"][bins]

    return Encoding(
        weights={"table": Weight((rows, config.num_heads), ("distances", "heads"))},
        distance_bias=distance_bias,
        theta=theta,
    )


@relative_encoding("alibi")
def alibi(config: ModelConfig) -> Encoding:
    """ALiBi (Press et al., 2022), both ways: -m_h |j - i| with fixed slopes m_h."""
    slope_H = jnp.asarray(alibi_slopes(config.num_heads), jnp.float32)
    return Encoding(
        distance_bias=lambda weights, distance_N: -slope_H[:, None] * jnp.abs(distance_N)
    )


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... for n heads if n is a power of two.

    Other counts take the slopes of the next lower power and fill up with every other slope of the
    next higher one, as the authors do.
    """
    power = 2 ** int(math.log2(num_heads))
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    return slopes + (alibi_slopes(2 * power)[::2][: num_heads - power] if num_heads > power else [])


@relative_encoding("attenuated")
def attenuated(config: ModelConfig) -> Encoding:
    """Chen et al., 2023: delta_ij = exp(-w (j-i)^2) / sum_j exp(-w (j-i)^2), the same in all heads.

    w is `decay_left` for j < i and `decay_right` for j > i; the bias is `attenuation_gain` * delta.
    """
    gain = config.position.attenuation_gain

    def distance_bias(weights: Weights, distance_N: jax.Array) -> jax.Array:
        bias_N = gain * _gaussian(config, distance_N)
        return jnp.broadcast_to(bias_N, (config.num_heads, distance_N.size))

    def row_factor(length: int) -> jax.Array:
        """1 / sum_j, from running sums: query i has the distances -i .. S-1-i."""
        before_N = jnp.cumsum(_gaussian(config, distances(length)))
        before_N = jnp.pad(before_N, (1, 0))
        first_S = length - 1 - jnp.arange(length)
        return 1 / (before_N[first_S + length] - before_N[first_S])

    return Encoding(distance_bias=distance_bias, row_factor=row_factor)


@relative_encoding("attenuated_layer_head")
def attenuated_layer_head(config: ModelConfig) -> Encoding:
    """The attenuated encoding, learnable: a table over |j - i| for each layer and head."""
    return _learned_attenuation(config, config.num_heads, "heads")


@relative_encoding("attenuated_layer")
def attenuated_layer(config: ModelConfig) -> Encoding:
    """The attenuated encoding, learnable: a table over |j - i| per layer, shared by its heads."""
    return _learned_attenuation(config, 1, None)


def _learned_attenuation(config: ModelConfig, heads: int, heads_axis: str | None) -> Encoding:
    """A table over d = |j - i|, or over j - i if the decays differ.

    As released, it starts at exp(-w d^2) / sum_{d >= 0} exp(-w d^2). The fixed encoding sums over
    both sides, so its values are smaller. If the decays differ, the sides' sums are averaged.
    """
    longest = config.position.max_length
    symmetric = config.position.decay_left == config.position.decay_right
    rows = longest if symmetric else 2 * longest - 1

    def start(key: jax.Array, shape: Any) -> jax.Array:
        kernel_N = _gaussian(config, distances(longest))
        side = (kernel_N.sum() + 1) / 2  # distance 0, whose kernel is 1, belongs to both sides
        bias_N = config.position.attenuation_gain * kernel_N / side
        return jnp.broadcast_to(bias_N[-rows:, None], shape)

    def distance_bias(weights: Weights, distance_N: jax.Array) -> jax.Array:
        row_N = jnp.abs(distance_N) if symmetric else distance_N + longest - 1
        return jnp.broadcast_to(weights["table"][row_N].T, (config.num_heads, distance_N.size))

    return Encoding(
        layer_weights={"table": Weight((rows, heads), ("distances", heads_axis), start)},
        distance_bias=distance_bias,
        longest=longest,
    )


def _gaussian(config: ModelConfig, distance: jax.Array) -> jax.Array:
    w = jnp.where(distance < 0, config.position.decay_left, config.position.decay_right)
    return jnp.exp(-w * jnp.square(distance.astype(jnp.float32)))


@relative_encoding("shaw")
def shaw(config: ModelConfig) -> Encoding:
    """Shaw et al., 2018: x_i W^Q (x_j W^K + r_{j-i})^T, r per layer, distances clipped."""
    farthest = config.position.max_distance
    table = Weight((2 * farthest + 1, config.head_size), ("distances", "head_size"))

    def scores(once: Any, weights: Weights, q: jax.Array, k: jax.Array) -> jax.Array:
        row_N = jnp.clip(distances(q.shape[1]), -farthest, farthest) + farthest
        r_Nxd = weights["r"][row_N].astype(q.dtype)
        return by_distance_to_pairs(_dot("bihd,nd->bhin", q, r_Nxd))

    return Encoding(layer_weights={"r": table}, scores=scores)


@relative_encoding("deberta", dot_products=2)
def deberta(config: ModelConfig) -> Encoding:
    """DeBERTa (He et al., 2021): content-to-position and position-to-content terms.

    q_i . (r_{delta(i,j)} W^{K,r}) + k_j . (r_{delta(j,i)} W^{Q,r}), where delta(i, j) is i - j
    clipped to [-k, k - 1]; r is shared by all layers, the projections are each layer's own.
    """
    farthest = config.position.max_distance
    return _disentangled(
        config, farthest, lambda delta_N: np.clip(delta_N, -farthest, farthest - 1)
    )


@relative_encoding("deberta_released", dot_products=2)
def deberta_released(config: ModelConfig) -> Encoding:
    """DeBERTa as it was released, all versions: not quite the paper's.

    The second term has r_{delta(i,j)}, too; the projections of r have biases; and from version 2 on
    the farther half of the distances share buckets that grow logarithmically.
    """
    bins, farthest = config.position.relative_bins, config.position.max_distance

    def bucket(delta_N: Ints) -> Ints:
        if bins < farthest:
            delta_N = log_bucket(delta_N, num_buckets=bins, max_distance=farthest)
        return np.clip(delta_N, -bins, bins - 1)

    return _disentangled(config, bins, bucket, released=True)


def _disentangled(
    config: ModelConfig, farthest: int, bucket: Callable[[Ints], Ints], *, released: bool = False
) -> Encoding:
    """`bucket` brings i - j into [-farthest, farthest - 1]."""
    D, H, d = config.hidden_size, config.num_heads, config.head_size
    projection = Weight((D, H, d), ("embed", "heads", "head_size"))
    layer_weights = {"key_kernel": projection, "query_kernel": projection}
    if released:
        bias = Weight((H, d), ("heads", "head_size"), zeros)
        layer_weights |= {"key_bias": bias, "query_bias": bias}

    def scores(once: Any, weights: Weights, q: jax.Array, k: jax.Array) -> jax.Array:
        delta_N = np.arange(q.shape[1] - 1, -q.shape[1], -1)

        def projected(part: str, delta_N: Ints) -> jax.Array:
            kernel = weights[f"{part}_kernel"].astype(q.dtype)
            r_RxHxd = jnp.tensordot(once.astype(q.dtype), kernel, 1)
            if released:
                r_RxHxd += weights[f"{part}_bias"].astype(q.dtype)
            return r_RxHxd[bucket(delta_N) + farthest]

        key_NxHxd = projected("key", delta_N)
        # Rows are j here: delta(j, i) depends on i - j just as delta(i, j) does on j - i.
        query_NxHxd = projected("query", -delta_N if released else delta_N)
        content_to_position = by_distance_to_pairs(_dot("bihd,nhd->bhin", q, key_NxHxd))
        position_to_content = by_distance_to_pairs(_dot("bjhd,nhd->bhjn", k, query_NxHxd))
        return content_to_position + position_to_content.swapaxes(-1, -2)

    return Encoding(
        weights={"r": Weight((2 * farthest, D), ("distances", "embed"))},
        layer_weights=layer_weights,
        once=lambda weights, length: weights["r"],
        scores=scores,
    )


@relative_encoding("transformer_xl")
def transformer_xl(config: ModelConfig) -> Encoding:
    """Transformer-XL (Dai et al., 2019), both ways, as XLNet has it.

    (x_i W^Q + u)(x_j W^K)^T + (x_i W^Q + v)(R_{i-j} W^R)^T with sinusoidal R, sines first. The sum
    of both is scaled as one product.
    """
    D, H, d = config.hidden_size, config.num_heads, config.head_size
    bias = Weight((H, d), ("heads", "head_size"), zeros)

    def once(weights: Weights, length: int) -> jax.Array:
        angle_Nxh = np.arange(length - 1, -length, -1)[:, None] * 10000.0 ** -(
            np.arange(0, D, 2) / D
        )
        return jnp.asarray(np.concatenate([np.sin(angle_Nxh), np.cos(angle_Nxh)], -1), jnp.float32)

    def queries_keys(
        once: Any, weights: Weights, q: jax.Array, k: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return q + weights["u_bias"].astype(q.dtype), k

    def scores(once: Any, weights: Weights, q: jax.Array, k: jax.Array) -> jax.Array:
        R_NxHxd = jnp.tensordot(once.astype(q.dtype), weights["kernel"].astype(q.dtype), 1)
        return by_distance_to_pairs(
            _dot("bihd,nhd->bhin", q + weights["v_bias"].astype(q.dtype), R_NxHxd)
        )

    return Encoding(
        layer_weights={
            "kernel": Weight((D, H, d), ("embed", "heads", "head_size")),
            "u_bias": bias,
            "v_bias": bias,
        },
        once=once,
        queries_keys=queries_keys,
        scores=scores,
    )


@relative_encoding("rope")
def rope(
    config: ModelConfig,
    rope_base: float = 10_000.0,
    rope_local_base: float = 0.0,
    rope_share: float = 1.0,
    rope_precision: str = "float32",
) -> Encoding:
    """RoPE (Su et al., 2021): q_i and k_j are rotated by i and j, so q k^T depends on j - i.

    The planes are the feature pairs (m, m + d/2) rather than the paper's (2m, 2m + 1): the same
    family of models, with contiguous halves. Plane m of n turns by rope_base^(-m/n) per token, in
    layers with an attention window by rope_local_base^(-m/n) unless that base is 0. Of each head
    the first share `rope_share` of the features is rotated. With `rope_precision="float16"` the
    angles per token are rounded to that type, as in models that were trained so.
    """
    _check_rope_options(rope_base, rope_local_base, rope_share, rope_precision)
    half = int(rope_share * config.head_size) // 2
    if config.head_size % 2 and rope_share == 1:
        raise UserError(
            f"position.relative='rope' rotates pairs of features and needs an even head size; "
            f"model.hidden_size={config.hidden_size} / model.num_heads={config.num_heads} "
            f"gives {config.head_size}"
        )

    def once(base: float, weights: Weights, length: int) -> tuple[jax.Array, jax.Array]:
        turn_h = base ** (-np.arange(half) / half)
        if rope_precision == "float16":
            turn_h = turn_h.astype(np.float32).astype(np.float16).astype(np.float64)
        angle_Sxh = np.arange(length)[:, None] * turn_h
        return jnp.asarray(np.cos(angle_Sxh), jnp.float32), jnp.asarray(
            np.sin(angle_Sxh), jnp.float32
        )

    def queries_keys(
        once: Any, weights: Weights, q: jax.Array, k: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        cos_Sx1xh, sin_Sx1xh = (part[:, None] for part in once)

        def rotate(x: jax.Array) -> jax.Array:
            a, b = (x[..., n * half : (n + 1) * half].astype(jnp.float32) for n in (0, 1))
            turned = [a * cos_Sx1xh - b * sin_Sx1xh, b * cos_Sx1xh + a * sin_Sx1xh]
            if 2 * half < x.shape[-1]:
                turned.append(x[..., 2 * half :].astype(jnp.float32))
            return jnp.concatenate(turned, -1).astype(x.dtype)

        return rotate(q), rotate(k)

    return Encoding(
        once=partial(once, rope_base),
        local_once=partial(once, rope_local_base) if rope_local_base else None,
        queries_keys=queries_keys,
    )


def _check_rope_options(base: float, local_base: float, share: float, precision: str) -> None:
    one_of(precision, ("float32", "float16"), "position.options.rope_precision")
    if not 1 < base < math.inf:
        raise UserError(f"position.options.rope_base={base} must be above 1 and finite")
    if local_base and not 1 < local_base < math.inf:
        raise UserError(
            f"position.options.rope_local_base={local_base} must be above 1 and finite, or 0"
        )
    if not 0 < share <= 1:
        raise UserError(f"position.options.rope_share={share} must be above 0 and at most 1")


def _dot(equation: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(equation, a, b, preferred_element_type=jnp.float32)

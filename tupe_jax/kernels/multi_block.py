"""Attention over long sequences: online softmax over blocks of keys, the bias from its factors.

A program takes a block of queries. All keys and values of the sequence are in VMEM, the scores one
block at a time. Blocks of keys outside the attention window are skipped. Kept for the backward
pass: each query's largest logit and the sum of its exponentials.

VMEM limits the length, and the compiler refuses what does not fit: in bfloat16 with heads of 64,
8,192 tokens compile for v5p (64 MiB a core) and 16,384 do not, by a fraction of a MiB; 32,768
compile for v5e (128 MiB). Beyond that, set `model.attention_implementation='xla'`.

The gradients of the bias's factors are summed over the batch in VMEM: their output blocks stay
while the batch passes by.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.block_sizes import (
    LANES,
    Tiles,
    long_block,
    long_tiles_for,
    long_vmem_bytes,
)
from tupe_jax.kernels.common import (
    KernelSettings,
    dot,
    dropout_origin,
    keep,
    key_mask,
    of_head,
    run,
)
from tupe_jax.kernels.factored import FactoredBias
from tupe_jax.kernels.multi_block_common import (
    BiasArrays,
    BlockIndex,
    LongBlockSpecs,
    bias_arrays,
    bias_names,
    for_key_blocks,
    key_block,
    long_kept,
    long_logits,
    query_and_key_positions,
    window_of_tile,
    windows_of_distances,
)
from tupe_jax.kernels.reference import MASKED
from tupe_jax.kernels.window import pairs_computed


def multi_block_attention(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias: FactoredBias,
    is_token_BxS: jax.Array,
    seed: jax.Array | None,
    *,
    scale: float,
    rate: float,
    window: int = 0,
    first_sequence: jax.Array | int = 0,
    first_head: jax.Array | int = 0,
    block: int | None = None,
) -> jax.Array:
    """`reference.attention` with the bias `factored.dense(bias)`, neither of size S x S.

    `block` is the size of a score tile in queries and in keys; None: what suits the window.
    """
    B, S, H, d = q_BxSxHxd.shape
    block = block or long_block(window)
    tiles = long_tiles_for(B, S, H, d, block)
    more_tokens, more_heads = tiles.length - S, tiles.num_heads - H

    def packed(x: jax.Array) -> jax.Array:
        padding = (0, more_tokens), (0, more_heads), (0, tiles.head_size - d)
        x = jnp.pad(x, ((0, 0),) * (x.ndim - 3) + padding)
        return x.reshape(*x.shape[:-2], -1)

    def with_all_heads(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, more_heads),) + ((0, 0),) * (x.ndim - 1))

    arrays = BiasArrays(None, None, None, None, None)
    if bias.by_distance_HxN is not None:
        by_distance = with_all_heads(bias.by_distance_HxN.astype(jnp.float32))
        arrays = replace(
            arrays, windows_HxNxW=windows_of_distances(by_distance, tiles.length, block)
        )
    if bias.row_factor_S is not None:
        row_factor = jax.lax.stop_gradient(bias.row_factor_S)
        arrays = replace(arrays, row_factor_Sx1=jnp.pad(row_factor, (0, more_tokens))[:, None])
    if bias.p_q_SxHxd is not None and bias.p_k_SxHxd is not None:
        p_q, p_k = (packed(p.astype(q_BxSxHxd.dtype)) for p in (bias.p_q_SxHxd, bias.p_k_SxHxd))
        arrays = replace(arrays, p_q_SxF=p_q, p_k_SxF=p_k)
    if bias.theta_1_H is not None and bias.theta_2_H is not None:
        thetas = jnp.stack([bias.theta_1_H, bias.theta_2_H], 1).astype(jnp.float32)
        arrays = replace(arrays, thetas_Hx2=with_all_heads(thetas))
    out = _long(
        KernelSettings(tiles, scale, 0.0 if seed is None else rate, window),
        packed(q_BxSxHxd),
        packed(k_BxSxHxd),
        packed(v_BxSxHxd),
        arrays,
        key_mask(is_token_BxS, tiles.length),
        dropout_origin(seed, first_sequence, first_head),
    )
    return out.reshape(B, tiles.length, tiles.num_heads, tiles.head_size)[:, :S, :H, :d]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _long(settings: KernelSettings, *arrays: Any) -> jax.Array:
    return _forward(settings, *arrays)[0]


def _forward(
    settings: KernelSettings,
    q_BxSxF: jax.Array,
    k_BxSxF: jax.Array,
    v_BxSxF: jax.Array,
    bias: BiasArrays,
    mask_Bx1xS: jax.Array,
    origin_3: jax.Array,
) -> tuple[jax.Array, tuple[Any, ...]]:
    tiles = settings.tiles
    specs = LongBlockSpecs(tiles)
    groups = tiles.num_heads // tiles.heads
    stats = jax.ShapeDtypeStruct((tiles.batch, groups, 2 * tiles.heads, tiles.length), jnp.float32)
    out, stats_BxGx2hxS = run(
        partial(_forward_kernel, settings, bias_names(bias)),
        origin_3,
        inputs=[q_BxSxF, k_BxSxF, v_BxSxF, mask_Bx1xS, *bias_arrays(bias)],
        in_specs=[specs.queries, *[specs.sequence] * 2, specs.mask, *specs.of_bias(bias)],
        outputs=[jax.ShapeDtypeStruct(q_BxSxF.shape, q_BxSxF.dtype), stats],
        out_specs=[specs.queries, specs.stats],
        grid=specs.grid,
        vmem_bytes=long_vmem_bytes(tiles, q_BxSxF.dtype.itemsize, backward=False),
        products=2,
        pairs=pairs_computed(tiles.length, tiles.queries, settings.window),
        tiles=tiles,
        name="long_attention_forward",
    )
    out, stats_BxGx2hxS = keep(out), keep(stats_BxGx2hxS)
    return out, (q_BxSxF, k_BxSxF, v_BxSxF, bias, mask_Bx1xS, origin_3, out, stats_BxGx2hxS)


def _backward(settings: KernelSettings, kept: tuple[Any, ...], g: jax.Array) -> tuple[Any, ...]:
    q, k, v, bias, mask, origin, out, stats = kept
    return (*_gradients(settings, q, k, v, bias, mask, origin, out, stats, g), None, None)


_long.defvjp(_forward, _backward)


def _forward_kernel(
    settings: KernelSettings,
    names: list[str],
    origin_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    *bias_refs, out_ref, stats_ref = refs
    bias = dict(zip(names, bias_refs, strict=True))
    tiles, index = settings.tiles, BlockIndex.of(settings, origin_ref)
    q, size = q_ref[0], tiles.queries
    out = jnp.zeros((size, tiles.features), jnp.float32)
    for head in range(tiles.heads):

        def add_block(n: Any, sums: Any, head: int = head) -> Any:
            largest, total, mixed = sums
            keys = key_block(tiles, n)
            k, v = (of_head(tiles, head, x_ref[0, keys]) for x_ref in (k_ref, v_ref))
            logits = long_logits(settings, index, bias, q, k, mask_ref[0, :, keys], head, n)
            larger = jnp.maximum(largest, logits.max(-1, keepdims=True))
            weights, shrink = jnp.exp(logits - larger), jnp.exp(largest - larger)
            total = total * shrink + weights.sum(-1, keepdims=True)
            if settings.rate:
                weights = jnp.where(long_kept(settings, index, head, n), weights, 0.0)
            return larger, total, mixed * shrink + dot(weights.astype(q.dtype), v)

        largest, total, mixed = for_key_blocks(
            settings,
            index,
            add_block,
            (
                jnp.full((size, 1), 3 * MASKED, jnp.float32),
                jnp.zeros((size, 1), jnp.float32),
                jnp.zeros((size, tiles.features), jnp.float32),
            ),
        )
        out += mixed / (total * (1 - settings.rate))
        stats_ref[0, 0, 2 * head] = _column_to_row(largest)
        stats_ref[0, 0, 2 * head + 1] = _column_to_row(1 / total)
    out_ref[0] = out.astype(out_ref.dtype)


def _column_to_row(x_Nx1: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x_Nx1, (x_Nx1.shape[0], LANES)).T[0]


def _gradients(
    settings: KernelSettings,
    q_BxSxF: jax.Array,
    k_BxSxF: jax.Array,
    v_BxSxF: jax.Array,
    bias: BiasArrays,
    mask_Bx1xS: jax.Array,
    origin_3: jax.Array,
    out_BxSxF: jax.Array,
    stats_BxGx2hxS: jax.Array,
    g_BxSxF: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, BiasArrays]:
    """(dq, dk, dv, dbias) for a gradient g of the output."""
    tiles = settings.tiles
    specs = LongBlockSpecs(tiles)
    names = bias_names(bias)
    learnable = [name for name in names if name != "row_factor_Sx1"]
    tokens = jax.ShapeDtypeStruct(q_BxSxF.shape, q_BxSxF.dtype)
    out_specs = {**specs.bias, "thetas_Hx2": specs.theta_gradient}
    shapes = {name: getattr(bias, name).shape for name in learnable}
    if "thetas_Hx2" in shapes:
        shapes["thetas_Hx2"] = (tiles.num_heads, 1, LANES)
    dq, dk, dv, *sums = run(
        partial(_backward_kernel, settings, names, learnable),
        origin_3,
        inputs=[
            q_BxSxF, k_BxSxF, v_BxSxF, g_BxSxF, out_BxSxF, stats_BxGx2hxS, mask_Bx1xS,
            *bias_arrays(bias),
        ],
        in_specs=[
            specs.queries, *[specs.sequence] * 2, *[specs.queries] * 2, specs.stats, specs.mask,
            *specs.of_bias(bias),
        ],
        outputs=[tokens] * 3 + [jax.ShapeDtypeStruct(shapes[n], jnp.float32) for n in learnable],
        out_specs=[specs.queries, *[specs.sequence] * 2, *[out_specs[name] for name in learnable]],
        grid=specs.grid,
        vmem_bytes=long_vmem_bytes(tiles, q_BxSxF.dtype.itemsize, backward=True),
        products=5,
        pairs=pairs_computed(tiles.length, tiles.queries, settings.window),
        tiles=tiles,
        name="long_attention_backward",
        scratch=[pltpu.VMEM((tiles.length, tiles.features), jnp.float32)] * 2,
    )  # fmt: skip
    dbias = dict(zip(learnable, sums, strict=True))
    if "thetas_Hx2" in dbias:
        # theta_1 is the same for all logits of a query: softmax ignores it.
        theta_2_H = dbias["thetas_Hx2"][:, 0, 0]
        dbias["thetas_Hx2"] = jnp.stack([jnp.zeros_like(theta_2_H), theta_2_H], 1)
    if bias.row_factor_Sx1 is not None:
        dbias["row_factor_Sx1"] = jnp.zeros_like(bias.row_factor_Sx1)
    every = {name: dbias[name].astype(getattr(bias, name).dtype) for name in names}
    absent = dict.fromkeys(BiasArrays.__dataclass_fields__)
    return dq, dk, dv, BiasArrays(**{**absent, **every})


def _backward_kernel(
    settings: KernelSettings,
    names: list[str],
    learnable: list[str],
    origin_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    g_ref: Any,
    out_ref: Any,
    stats_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    bias = dict(zip(names, refs[: len(names)], strict=True))
    dq_ref, dk_ref, dv_ref, *sum_refs, dk_sum_ref, dv_sum_ref = refs[len(names) :]
    dbias = dict(zip(learnable, sum_refs, strict=True))
    tiles, index = settings.tiles, BlockIndex.of(settings, origin_ref)
    blocks = tiles.length // tiles.queries
    first_sequence, last_block = pl.program_id(1) == 0, index.query_block == blocks - 1

    @pl.when(index.query_block == 0)
    def _() -> None:
        dk_sum_ref[...] = jnp.zeros_like(dk_sum_ref)
        dv_sum_ref[...] = jnp.zeros_like(dv_sum_ref)

    @pl.when(first_sequence & (index.query_block == 0))
    def _() -> None:
        for ref in sum_refs:
            ref[...] = jnp.zeros_like(ref)

    dq = jnp.zeros((tiles.queries, tiles.features), jnp.float32)
    for head in range(tiles.heads):
        q, g = (of_head(tiles, head, x_ref[0]) for x_ref in (q_ref, g_ref))
        largest, inverse_total = (
            _row_to_column(stats_ref[0, 0, pl.ds(2 * head + n, 1)]) for n in (0, 1)
        )
        mean = (g.astype(jnp.float32) * out_ref[0].astype(jnp.float32)).sum(-1, keepdims=True)

        def add_block(
            n: Any,
            dq: jax.Array,
            head: int = head,
            q: jax.Array = q,
            g: jax.Array = g,
            largest: jax.Array = largest,
            inverse_total: jax.Array = inverse_total,
            mean: jax.Array = mean,
        ) -> jax.Array:
            keys = key_block(tiles, n)
            k = of_head(tiles, head, k_ref[0, keys])
            logits = long_logits(settings, index, bias, q, k, mask_ref[0, :, keys], head, n)
            weights = jnp.exp(logits - largest) * inverse_total
            used, dweights = weights, dot(g, v_ref[0, keys], contract=(1, 1))
            if settings.rate:
                kept, factor = long_kept(settings, index, head, n), 1 / (1 - settings.rate)
                used = jnp.where(kept, weights * factor, 0.0)
                dweights = jnp.where(kept, dweights * factor, 0.0)
            dv_sum_ref[keys] += dot(used.astype(g.dtype), g, contract=(0, 0))
            dlogits = weights * (dweights - mean)
            dscores = (dlogits * settings.scale).astype(q.dtype)
            dk_sum_ref[keys] += dot(dscores, q, contract=(0, 0))
            _add_bias_gradients(tiles, index, bias, dbias, dlogits, q.dtype, head, n)
            return dq + dot(dscores, k)

        dq = for_key_blocks(settings, index, add_block, dq)
    dq_ref[0] = dq.astype(dq_ref.dtype)

    @pl.when(last_block)
    def _() -> None:
        dk_ref[0] = dk_sum_ref[...].astype(dk_ref.dtype)
        dv_ref[0] = dv_sum_ref[...].astype(dv_ref.dtype)


def _add_bias_gradients(
    tiles: Tiles,
    index: BlockIndex,
    bias: dict[str, Any],
    dbias: dict[str, Any],
    dlogits: jax.Array,
    dtype: Any,
    head: int,
    n: Any,
) -> None:
    """Add what key block n gives to the gradient of each factor of the bias."""
    if "thetas_Hx2" in dbias:
        i, j = query_and_key_positions(tiles, index, n)
        dtheta_2 = jnp.where((i > 0) & (j == 0), dlogits, 0.0).sum(0, keepdims=True)
        dbias["thetas_Hx2"][head] += dtheta_2[:, :LANES]
        dlogits = jnp.where((i == 0) | (j == 0), 0.0, dlogits)
    if "p_q_SxF" in dbias:
        queries, keys = key_block(tiles, index.query_block), key_block(tiles, n)
        p_q, p_k = (
            of_head(tiles, head, bias[name][block])
            for name, block in (("p_q_SxF", queries), ("p_k_SxF", keys))
        )
        dbias["p_q_SxF"][queries] += dot(dlogits.astype(dtype), p_k)
        dbias["p_k_SxF"][keys] += dot(dlogits.astype(dtype), p_q, contract=(0, 0))
    if "row_factor_Sx1" in bias:
        dlogits *= bias["row_factor_Sx1"][...]
    if "windows_HxNxW" in dbias:
        window = pl.ds(n - index.query_block + tiles.length // tiles.queries - 1, 1)
        dbias["windows_HxNxW"][head, window] += window_of_tile(dlogits)


def _row_to_column(x_1xN: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x_1xN, (LANES, x_1xN.shape[1])).T[:, :1]

"""Attention over long rows: online softmax over blocks of keys, the bias built from its factors.

A program takes a block of queries of a row; the row's keys and values are in VMEM as a whole, the
scores one block at a time. Kept for the backward pass: each query's largest logit and the sum of
its exponentials.

How long a row can be is up to VMEM, and the compiler's to refuse: in bfloat16 with heads of 64,
8,192 tokens compile for v5p (64 MiB a core) and 16,384 do not, by a fraction of a MiB; 32,768
compile for v5e (128 MiB). Beyond that there is `model.attention_implementation='xla'`.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tupe_jax.kernels.block_sizes import LANES, long_tiles_for, long_vmem_bytes
from tupe_jax.kernels.common import Settings, dot, key_mask, of_head, place_of, run
from tupe_jax.kernels.diagonals import windows_of_distances
from tupe_jax.kernels.factored import FactoredBias
from tupe_jax.kernels.multi_block_backward import gradients
from tupe_jax.kernels.multi_block_common import (
    BiasArrays,
    LongBlockSpecs,
    Program,
    bias_arrays,
    bias_names,
    key_block,
    long_kept,
    long_logits,
)
from tupe_jax.kernels.reference import MASKED

BLOCK = 512
"""Queries and keys of a score tile."""


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
    first_row: jax.Array | int = 0,
    first_head: jax.Array | int = 0,
    block: int = BLOCK,
) -> jax.Array:
    """`reference.attention` with the bias `factored.dense(bias)`, neither of size S x S."""
    B, S, H, d = q_BxSxHxd.shape
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
        Settings(tiles, scale, 0.0 if seed is None else rate),
        packed(q_BxSxHxd),
        packed(k_BxSxHxd),
        packed(v_BxSxHxd),
        arrays,
        key_mask(is_token_BxS, tiles.length),
        place_of(seed, first_row, first_head),
    )
    return out.reshape(B, tiles.length, tiles.num_heads, tiles.head_size)[:, :S, :H, :d]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _long(settings: Settings, *arrays: Any) -> jax.Array:
    return _forward(settings, *arrays)[0]


def _forward(
    settings: Settings,
    q_BxSxF: jax.Array,
    k_BxSxF: jax.Array,
    v_BxSxF: jax.Array,
    bias: BiasArrays,
    mask_Bx1xS: jax.Array,
    place_3: jax.Array,
) -> tuple[jax.Array, tuple[Any, ...]]:
    tiles = settings.tiles
    specs = LongBlockSpecs(tiles)
    groups = tiles.num_heads // tiles.heads
    stats = jax.ShapeDtypeStruct((tiles.batch, groups, 2 * tiles.heads, tiles.length), jnp.float32)
    out, stats_BxGx2hxS = run(
        partial(_forward_kernel, settings, bias_names(bias)),
        place_3,
        inputs=[q_BxSxF, k_BxSxF, v_BxSxF, mask_Bx1xS, *bias_arrays(bias)],
        in_specs=[specs.queries, *[specs.row] * 2, specs.mask, *specs.of_bias(bias)],
        outputs=[jax.ShapeDtypeStruct(q_BxSxF.shape, q_BxSxF.dtype), stats],
        out_specs=[specs.queries, specs.stats],
        grid=specs.grid,
        vmem_bytes=long_vmem_bytes(tiles, q_BxSxF.dtype.itemsize, backward=False),
        products=2,
        tiles=tiles,
        name="long_attention_forward",
    )
    return out, (q_BxSxF, k_BxSxF, v_BxSxF, bias, mask_Bx1xS, place_3, out, stats_BxGx2hxS)


def _backward(settings: Settings, kept: tuple[Any, ...], g: jax.Array) -> tuple[Any, ...]:
    q, k, v, bias, mask, place, out, stats = kept
    return (*gradients(settings, q, k, v, bias, mask, place, out, stats, g), None, None)


_long.defvjp(_forward, _backward)


def _forward_kernel(
    settings: Settings,
    names: list[str],
    place_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    *bias_refs, out_ref, stats_ref = refs
    bias = dict(zip(names, bias_refs, strict=True))
    tiles, program = settings.tiles, Program.of(settings, place_ref)
    q, size = q_ref[0], tiles.queries
    out = jnp.zeros((size, tiles.features), jnp.float32)
    for head in range(tiles.heads):

        def add_block(n: Any, sums: Any, head: int = head) -> Any:
            largest, total, mixed = sums
            keys = key_block(tiles, n)
            k, v = (of_head(tiles, head, x_ref[0, keys]) for x_ref in (k_ref, v_ref))
            logits = long_logits(settings, program, bias, q, k, mask_ref[0, :, keys], head, n)
            larger = jnp.maximum(largest, logits.max(-1, keepdims=True))
            weights, shrink = jnp.exp(logits - larger), jnp.exp(largest - larger)
            total = total * shrink + weights.sum(-1, keepdims=True)
            if settings.rate:
                weights = jnp.where(long_kept(settings, program, head, n), weights, 0.0)
            return larger, total, mixed * shrink + dot(weights.astype(q.dtype), v)

        largest, total, mixed = jax.lax.fori_loop(
            0,
            tiles.length // size,
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

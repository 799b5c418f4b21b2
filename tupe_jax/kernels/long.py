"""Attention over long rows: online softmax over blocks of keys, the bias built from its factors.

A program takes a block of queries of a row; the row's keys and values are in VMEM as a whole, the
scores one block at a time. Kept for the backward pass: each query's largest logit and the sum of
its exponentials.
"""

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.diagonals import tile_of_window, windows_of_distances
from tupe_jax.kernels.dropout import is_kept
from tupe_jax.kernels.factored import FactoredBias
from tupe_jax.kernels.fused import Place, dot, key_mask, of_head, place_of, run
from tupe_jax.kernels.reference import MASKED
from tupe_jax.kernels.tiles import LANES, Tiles, long_tiles_for, long_vmem_bytes

BLOCK = 512
"""Queries and keys of a score tile."""


@dataclass(frozen=True)
class LongSettings:
    """What a kernel knows when it is compiled."""

    tiles: Tiles
    scale: float
    rate: float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BiasArrays:
    """A factored bias as the kernels read it; a part that is None is absent."""

    windows_HxNxW: jax.Array | None
    row_factor_Sx1: jax.Array | None
    p_q_SxF: jax.Array | None
    p_k_SxF: jax.Array | None
    thetas_Hx2: jax.Array | None


def long_attention(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias: FactoredBias,
    is_word_BxS: jax.Array,
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
        LongSettings(tiles, scale, 0.0 if seed is None else rate),
        packed(q_BxSxHxd),
        packed(k_BxSxHxd),
        packed(v_BxSxHxd),
        arrays,
        key_mask(is_word_BxS, tiles.length),
        place_of(seed, first_row, first_head),
    )
    return out.reshape(B, tiles.length, tiles.num_heads, tiles.head_size)[:, :S, :H, :d]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _long(settings: LongSettings, *arrays: Any) -> jax.Array:
    return _forward(settings, *arrays)[0]


def _forward(
    settings: LongSettings,
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


def _backward(settings: LongSettings, kept: tuple[Any, ...], g: jax.Array) -> tuple[Any, ...]:
    from tupe_jax.kernels.long_backward import gradients

    return (*gradients(settings, *kept, g), None, None)


_long.defvjp(_forward, _backward)


def bias_names(bias: BiasArrays) -> list[str]:
    """The parts that are present."""
    return [f.name for f in fields(bias) if getattr(bias, f.name) is not None]


def bias_arrays(bias: BiasArrays) -> list[jax.Array]:
    return [getattr(bias, name) for name in bias_names(bias)]


class LongBlockSpecs:
    """Which piece of an array the program (head block, row, query block) sees."""

    def __init__(self, tiles: Tiles):
        T, F = tiles, tiles.features
        self.grid = (T.num_heads // T.heads, T.batch, T.length // T.queries)
        self.queries = pl.BlockSpec((1, T.queries, F), lambda h, b, i, *_: (b, i, h))
        self.row = pl.BlockSpec((1, T.length, F), lambda h, b, i, *_: (b, 0, h))
        self.mask = pl.BlockSpec((1, 1, T.length), lambda h, b, i, *_: (b, 0, 0))
        self.stats = pl.BlockSpec((1, 1, 2 * T.heads, T.queries), lambda h, b, i, *_: (b, h, 0, i))
        windows = 2 * T.length // T.queries - 1
        self.bias = {
            "windows_HxNxW": pl.BlockSpec(
                (T.heads, windows, 2 * T.queries), lambda h, b, i, *_: (h, 0, 0)
            ),
            "row_factor_Sx1": pl.BlockSpec((T.queries, 1), lambda h, b, i, *_: (i, 0)),
            "p_q_SxF": pl.BlockSpec((T.length, F), lambda h, b, i, *_: (0, h)),
            "p_k_SxF": pl.BlockSpec((T.length, F), lambda h, b, i, *_: (0, h)),
            "thetas_Hx2": pl.BlockSpec(memory_space=pltpu.SMEM),
        }
        self.theta_gradient = pl.BlockSpec((T.heads, 1, LANES), lambda h, b, i, *_: (h, 0, 0))

    def of_bias(self, bias: BiasArrays) -> list[pl.BlockSpec]:
        return [self.bias[name] for name in bias_names(bias)]


@dataclass(frozen=True)
class Program:
    """Where in the whole batch a program works, read before any loop."""

    place: Place
    first_head: jax.Array
    """Among the heads given."""
    query_block: jax.Array

    @classmethod
    def of(cls, settings: LongSettings, place_ref: Any) -> "Program":
        first_head = pl.program_id(0) * settings.tiles.heads
        place = Place(place_ref[0], place_ref[1] + pl.program_id(1), place_ref[2] + first_head)
        return cls(place, first_head, pl.program_id(2))


def _forward_kernel(
    settings: LongSettings,
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


def key_block(tiles: Tiles, n: Any) -> Any:
    return pl.ds(pl.multiple_of(n * tiles.queries, tiles.queries), tiles.queries)


def long_logits(
    settings: LongSettings,
    program: Program,
    bias: dict[str, Any],
    q: jax.Array,
    k: jax.Array,
    mask_1xk: jax.Array,
    head: int,
    n: Any,
) -> jax.Array:
    """The logits q k^T scale + bias for key block n, with padding masked, in float32."""
    tiles = settings.tiles
    total = jnp.zeros((tiles.queries, tiles.queries), jnp.float32)
    if "windows_HxNxW" in bias:
        window = n - program.query_block + tiles.length // tiles.queries - 1
        total += tile_of_window(bias["windows_HxNxW"][head, pl.ds(window, 1)])
    if "row_factor_Sx1" in bias:
        total *= bias["row_factor_Sx1"][...]
    if "p_q_SxF" in bias:
        p_q = bias["p_q_SxF"][key_block(tiles, program.query_block)]
        p_k = of_head(tiles, head, bias["p_k_SxF"][key_block(tiles, n)])
        total += dot(p_q, p_k, contract=(1, 1))
    if "thetas_Hx2" in bias:
        theta_1, theta_2 = (bias["thetas_Hx2"][program.first_head + head, m] for m in (0, 1))
        i, j = places(tiles, program, n)
        total = jnp.where(i == 0, theta_1, jnp.where(j == 0, theta_2, total))
    return dot(q, k, contract=(1, 1)) * settings.scale + mask_1xk + total


def long_kept(settings: LongSettings, program: Program, head: int, n: Any) -> jax.Array:
    """Dropout's choice for key block n."""
    place = program.place
    i, j = places(settings.tiles, program, n)
    return is_kept(place.seed, place.row, place.head + head, i, j, rate=settings.rate)


def places(tiles: Tiles, program: Program, n: Any) -> tuple[jax.Array, jax.Array]:
    """The places in the row of this program's queries, [queries, 1], and of key block n, [1, k]."""
    size = tiles.queries
    i = program.query_block * size + jax.lax.broadcasted_iota(jnp.int32, (size, 1), 0)
    return i, n * size + jax.lax.broadcasted_iota(jnp.int32, (1, size), 1)


def _column_to_row(x_Nx1: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x_Nx1, (x_Nx1.shape[0], LANES)).T[0]

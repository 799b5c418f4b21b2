"""Shared by the kernels for long sequences: bias, blocks, logits.

A block of a bias that depends on j - i only is made and summed up in registers: b x b entries are
cut from a window of 2b values, tile[i, j] = window[b + j - i].
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.block_sizes import LANES, Tiles
from tupe_jax.kernels.common import DropoutOrigin, KernelSettings, dot, of_head
from tupe_jax.kernels.dropout import is_kept
from tupe_jax.kernels.reference import masked_outside
from tupe_jax.kernels.window import blocks_in_window

_SUBLANES = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BiasArrays:
    """A factored bias as the kernels read it; a part that is None is absent."""

    windows_HxNxW: jax.Array | None
    row_factor_Sx1: jax.Array | None
    p_q_SxF: jax.Array | None
    p_k_SxF: jax.Array | None
    thetas_Hx2: jax.Array | None


def bias_names(bias: BiasArrays) -> list[str]:
    """The parts that are present."""
    return [f.name for f in fields(bias) if getattr(bias, f.name) is not None]


def bias_arrays(bias: BiasArrays) -> list[jax.Array]:
    return [getattr(bias, name) for name in bias_names(bias)]


class LongBlockSpecs:
    """Which block of an array the program (head block, sequence, query block) reads or writes."""

    def __init__(self, tiles: Tiles):
        T, F = tiles, tiles.features
        self.grid = (T.num_heads // T.heads, T.batch, T.length // T.queries)
        self.queries = pl.BlockSpec((1, T.queries, F), lambda h, b, i, *_: (b, i, h))
        self.sequence = pl.BlockSpec((1, T.length, F), lambda h, b, i, *_: (b, 0, h))
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
class BlockIndex:
    """Which block of queries of the whole batch a program computes, read before any loop."""

    origin: DropoutOrigin
    first_head: jax.Array
    """Among the heads of this device."""
    query_block: jax.Array

    @classmethod
    def of(cls, settings: KernelSettings, origin_ref: Any) -> "BlockIndex":
        first_head = pl.program_id(0) * settings.tiles.heads
        origin = DropoutOrigin(
            origin_ref[0], origin_ref[1] + pl.program_id(1), origin_ref[2] + first_head
        )
        return cls(origin, first_head, pl.program_id(2))


def for_key_blocks(
    settings: KernelSettings, index: BlockIndex, add_block: Callable[[Any, Any], Any], sums: Any
) -> Any:
    """Apply sums = add_block(n, sums) to the key blocks that this program's queries attend to."""
    tiles = settings.tiles
    n = index.query_block
    first, end = blocks_in_window(n, tiles.length, tiles.queries, settings.window)
    return jax.lax.fori_loop(first, end, add_block, sums)


def key_block(tiles: Tiles, n: Any) -> Any:
    return pl.ds(pl.multiple_of(n * tiles.queries, tiles.queries), tiles.queries)


def long_logits(
    settings: KernelSettings,
    index: BlockIndex,
    bias: dict[str, Any],
    q: jax.Array,
    k: jax.Array,
    mask_1xk: jax.Array,
    head: int,
    n: Any,
) -> jax.Array:
    """The logits q k^T scale + bias for key block n, in float32.

    Padding and pairs outside the window are masked.
    """
    tiles = settings.tiles
    i, j = query_and_key_positions(tiles, index, n)
    total = jnp.zeros((tiles.queries, tiles.queries), jnp.float32)
    if "windows_HxNxW" in bias:
        window = n - index.query_block + tiles.length // tiles.queries - 1
        total += tile_of_window(bias["windows_HxNxW"][head, pl.ds(window, 1)])
    if "row_factor_Sx1" in bias:
        total *= bias["row_factor_Sx1"][...]
    if "p_q_SxF" in bias:
        p_q = bias["p_q_SxF"][key_block(tiles, index.query_block)]
        p_k = of_head(tiles, head, bias["p_k_SxF"][key_block(tiles, n)])
        total += dot(p_q, p_k, contract=(1, 1))
    if "thetas_Hx2" in bias:
        theta_1, theta_2 = (bias["thetas_Hx2"][index.first_head + head, m] for m in (0, 1))
        total = jnp.where(i == 0, theta_1, jnp.where(j == 0, theta_2, total))
    logits = dot(q, k, contract=(1, 1)) * settings.scale + mask_1xk + total
    return masked_outside(logits, i, j, settings.window)


def long_kept(settings: KernelSettings, index: BlockIndex, head: int, n: Any) -> jax.Array:
    """Dropout's choice for key block n."""
    origin = index.origin
    i, j = query_and_key_positions(settings.tiles, index, n)
    return is_kept(origin.seed, origin.sequence, origin.head + head, i, j, rate=settings.rate)


def query_and_key_positions(tiles: Tiles, index: BlockIndex, n: Any) -> tuple[jax.Array, jax.Array]:
    """The positions of this program's queries, [queries, 1], and of key block n, [1, k]."""
    size = tiles.queries
    i = index.query_block * size + jax.lax.broadcasted_iota(jnp.int32, (size, 1), 0)
    return i, n * size + jax.lax.broadcasted_iota(jnp.int32, (1, size), 1)


def tile_of_window(window_1xW: jax.Array) -> jax.Array:
    """The tile, [b, b]: row i is the window shifted to the right by i.

    Each step doubles the rows: the next rows are the present ones, shifted. Shifts by whole
    registers, the last and largest, cost nothing.
    """
    width = window_1xW.shape[1]
    size = width // 2
    rows = jnp.broadcast_to(window_1xW, (_SUBLANES, width))
    rows = pltpu.roll(rows, 0, 1, stride=1, stride_axis=0)
    while rows.shape[0] < size:
        rows = jnp.concatenate([rows, pltpu.roll(rows, rows.shape[0], 1)], 0)
    return rows[:, size:]


def window_of_tile(tile: jax.Array) -> jax.Array:
    """The transpose: sums along the diagonals, [1, W]. The same way back, rows being halved."""
    size = tile.shape[0]
    rows = jnp.concatenate([jnp.zeros_like(tile), tile], 1)
    half = size // 2
    while half:
        rows = rows[:half] + pltpu.roll(rows[half:], 2 * size - half, 1)
        half //= 2
    return rows


def windows_of_distances(by_distance_HxN: jax.Array, length: int, block: int) -> jax.Array:
    """All windows of a matrix of `length` cut into blocks, [H, 2 length / block - 1, 2 block].

    Window n is that of the tiles for which (j - i) / block = n - (length / block - 1) in blocks.
    """
    S, blocks = (by_distance_HxN.shape[1] + 1) // 2, length // block
    # Index 0 stands for j - i = -length; there are no tokens beyond +-(S - 1).
    padded = jnp.pad(by_distance_HxN, ((0, 0), (length - S + 1, length - S)))
    halves = padded.reshape(len(padded), 2 * blocks, block)
    return jnp.concatenate([halves[:, :-1], halves[:, 1:]], -1)

"""Tiles of a matrix that depends on j - i only, made and summed up in registers.

A tile of b x b entries is cut from a window of 2b values: tile[i, j] = window[b + j - i].
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

_SUBLANES = 8


def tile_of_window(window_1xW: jax.Array) -> jax.Array:
    """The tile, [b, b]: row i is the window moved i places to the right.

    Rows are doubled: those that exist, moved on together, are the next. Moves by whole registers,
    the last and largest, cost nothing.
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
    # Index 0 stands for j - i = -length; there are no words beyond +-(S - 1).
    padded = jnp.pad(by_distance_HxN, ((0, 0), (length - S + 1, length - S)))
    halves = padded.reshape(len(padded), 2 * blocks, block)
    return jnp.concatenate([halves[:, :-1], halves[:, 1:]], -1)

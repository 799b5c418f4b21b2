"""Which blocks of scores an attention window touches; the kernels skip the others."""

from typing import Any

import jax.numpy as jnp

from tupe_jax.kernels.block_sizes import round_up


def pairs_in_window(length: int, window: int) -> int:
    """How many pairs (i, j) of `length` tokens have |j - i| <= window / 2; all without a window."""
    return _pairs_within(length, window // 2 if window else length)


def pairs_computed(length: int, block: int, window: int) -> int:
    """The same with all pairs of every block that the window touches."""
    blocks = length // block
    return block**2 * _pairs_within(blocks, _reach(block, window) if window else blocks)


def skips_half(length: int, block: int, window: int) -> bool:
    """Whether the window touches at most half of the blocks of scores."""
    length = round_up(length, block)
    return 2 * pairs_computed(length, block, window) <= length**2


def blocks_in_window(n: Any, length: int, block: int, window: int) -> tuple[Any, Any]:
    """The first block of keys that queries in block n attend to, and the one after the last.

    As a window is symmetric, these are also the blocks of queries that attend to keys in block n.
    """
    blocks = length // block
    if not window:
        return 0, blocks
    reach = _reach(block, window)
    return jnp.maximum(n - reach, 0), jnp.minimum(n + reach + 1, blocks)


def _reach(block: int, window: int) -> int:
    """How many blocks away a window still touches keys."""
    return -(-(window // 2) // block)


def _pairs_within(count: int, side: int) -> int:
    side = min(side, count - 1)
    return count * (2 * side + 1) - side * (side + 1)

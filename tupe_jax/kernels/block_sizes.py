"""How a batch is split into tiles that fit a TPU core's vector memory (VMEM).

A program of the grid takes `sequences` sequences of the batch and `heads` heads. Heads lie side by
side in the last axis, [B, S, H d], as the projections make them: no transposition, and no padding
of 64 features to the 128 lanes of a register. Inside a program a head is selected by zeroing the
features of its neighbours, which costs a matrix unit 128 wide nothing.
"""

import math
from dataclasses import dataclass, replace

LANES = 128
"""Of a vector register; lengths and feature counts are padded to multiples."""
_SUBLANES = 8
_SCORES_AT_ONCE = 256 * 1024
"""Entries of a score tile, 1 MiB in float32; several tiles of that size are live at a time."""
_TOKENS_AT_ONCE = 512
"""A program takes several short sequences, up to this many tokens together."""
_LONG_BLOCK = 512
"""The most queries, and keys, of a score tile of long sequences."""
_LONGEST_SINGLE_BLOCK = 1024
_VMEM_BYTES = 56 * 2**20
"""What a kernel may take of the VMEM of a v5p or a TPU7x core, 64 MiB; v5e and v6e have twice."""


@dataclass(frozen=True)
class Tiles:
    """Sizes of the padded arrays and of the tiles of a program."""

    batch: int
    length: int
    """Padded to whole lanes."""
    head_size: int
    """Padded so that whole heads fill the lanes."""
    num_heads: int
    """Padded to a multiple of `heads`."""
    heads: int
    """Side by side in a program."""
    sequences: int
    """Sequences of the batch in a program."""
    queries: int
    """Queries of a score tile."""

    @property
    def grid(self) -> tuple[int, int]:
        """Batch innermost: a head's bias stays while the batch passes by."""
        return self.num_heads // self.heads, self.batch // self.sequences

    @property
    def features(self) -> int:
        """The number of features of a program: those of its heads."""
        return self.heads * self.head_size

    @property
    def bias_bytes(self) -> int:
        """The size of the float32 bias of a program's heads."""
        return 4 * self.heads * self.length**2


def tiles_for(batch: int, length: int, num_heads: int, head_size: int) -> Tiles:
    """Tiles for arrays of these sizes."""
    length = round_up(length, LANES)
    head_size = padded_head_size(head_size)
    heads = min(num_heads, max(1, LANES // head_size))
    most_queries = max(LANES, _SCORES_AT_ONCE // length)
    return Tiles(
        batch=batch,
        length=length,
        head_size=head_size,
        num_heads=round_up(num_heads, heads),
        heads=heads,
        sequences=_largest_divisor(batch, _TOKENS_AT_ONCE // length),
        queries=LANES * _largest_divisor(length // LANES, most_queries // LANES),
    )


def long_block(window: int) -> int:
    """Queries and keys of a score tile for long sequences: a power of two, as its bias requires.

    With a window, a tile is half of it if possible: one neighbour on either side is then enough.
    """
    if not window:
        return _LONG_BLOCK
    return min(max(LANES, power_of_two(window // 2)), _LONG_BLOCK)


def long_tiles_for(batch: int, length: int, num_heads: int, head_size: int, block: int) -> Tiles:
    """Tiles for long sequences: scores are computed in blocks of `block` queries and keys."""
    tiles = tiles_for(batch, length, num_heads, head_size)
    return replace(tiles, length=round_up(length, block), sequences=1, queries=block)


def fits_one_tile(length: int, num_heads: int, head_size: int, itemsize: int) -> bool:
    """Whether a query's scores for all keys fit in VMEM, whatever the batch size."""
    tiles = tiles_for(_TOKENS_AT_ONCE, length, num_heads, head_size)  # the most sequences
    enough = backward_vmem_bytes(tiles, itemsize) <= _VMEM_BYTES
    return tiles.length <= _LONGEST_SINGLE_BLOCK and enough


def padded_head_size(head_size: int) -> int:
    """The next power of two, or the next multiple of the lanes."""
    if head_size >= LANES:
        return round_up(head_size, LANES)
    return power_of_two(head_size)


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return int(2 ** math.ceil(math.log2(number)))


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _largest_divisor(number: int, at_most: int) -> int:
    return max((n for n in range(1, at_most + 1) if number % n == 0), default=1)


def forward_vmem_bytes(tiles: Tiles, itemsize: int) -> int:
    """An upper estimate of what a forward program needs: bias, sequences in and out, scores."""
    return tiles.bias_bytes + 2 * 4 * _token_bytes(tiles, itemsize) + 8 * _score_bytes(tiles)


def backward_vmem_bytes(tiles: Tiles, itemsize: int) -> int:
    """The same for a backward program, which also holds the bias's gradient, and that twice."""
    sums = 4 * 4 * tiles.length * max(LANES, tiles.features)
    tokens = 2 * 7 * _token_bytes(tiles, itemsize)
    return 3 * tiles.bias_bytes + tokens + sums + 12 * _score_bytes(tiles)


def _token_bytes(tiles: Tiles, itemsize: int) -> int:
    return tiles.sequences * tiles.length * max(LANES, tiles.features) * itemsize


def _score_bytes(tiles: Tiles) -> int:
    return 4 * tiles.queries * tiles.length


def long_vmem_bytes(tiles: Tiles, itemsize: int, *, backward: bool) -> int:
    """An upper estimate for the multi-block kernels: sequences, positions and score tiles.

    Windows of distances and the mask of keys grow with the length, so they count where tiles are
    small.
    """
    tokens, tile = _token_bytes(tiles, itemsize), 4 * tiles.queries**2
    positions, by_distance = 2 * 2 * tokens, 2 * 16 * tiles.heads * tiles.length
    mask = 2 * 4 * _SUBLANES * tiles.length
    if not backward:
        return 2 * 2 * tokens + positions + by_distance + mask + 12 * tile
    sums, position_sums = 2 * 4 * tokens // itemsize, 2 * 2 * 4 * tokens // itemsize
    return 2 * 4 * tokens + positions + sums + position_sums + 2 * by_distance + mask + 20 * tile

"""Bytes that attention moves between HBM and the chip, forward and backward, in one layer.

For the kernel they follow from its tiles: each block is fetched once per program, and not at all if
the previous program had the same one. For attention by einsum they are what XLA must at least write
and read between the matrix products, none of which it fuses with the next.
"""

from tupe_jax.kernels.block_sizes import tiles_for


def kernel_bytes(
    batch: int, length: int, num_heads: int, head_size: int, *, itemsize: int, bias_itemsize: int
) -> int:
    """Of the single-block kernels, padding included; no bias is a bias of 0 bytes."""
    tiles = tiles_for(batch, length, num_heads, head_size)
    head_blocks, batch_blocks = tiles.grid
    tokens = tiles.sequences * tiles.length * tiles.features * itemsize
    mask = 4 * tiles.sequences * tiles.length
    each_program = (4 + 7) * tokens + 2 * mask  # q k v -> out; q k v dout -> dq dk dv
    bias = tiles.heads * tiles.length**2 * bias_itemsize
    bias_gradient = tiles.bias_bytes if bias_itemsize else 0
    each_head_block = 2 * bias + bias_gradient
    return head_blocks * (batch_blocks * each_program + each_head_block)


def einsum_bytes(
    batch: int, length: int, num_heads: int, head_size: int, *, itemsize: int, bias_itemsize: int
) -> int:
    """Of attention by einsum, with float32 softmax."""
    tokens = batch * length * num_heads * head_size * itemsize
    bias = num_heads * length**2 * bias_itemsize
    forward = {
        "scores, written, read by softmax": 2 * 4,
        "weights, written, read by their product with v": 2 * itemsize,
    }
    backward = {
        "weights, read for dv and for softmax": 2 * itemsize,
        "dweights, written, read by softmax": 2 * 4,
        "dscores, written, read for dq and dk": 3 * itemsize,
    }
    scores = batch * num_heads * length**2
    per_score = sum(forward.values()) + sum(backward.values())
    return scores * per_score + (4 + 7) * tokens + 3 * bias

"""Attention with a batch-shared bias as one Pallas TPU kernel: no scores in HBM.

A program holds the whole rows of scores of its queries, so softmax is plain; what the backward pass
needs is computed again from q, k and v, and nothing else is kept.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tupe_jax.kernels.block_sizes import forward_vmem_bytes, tiles_for
from tupe_jax.kernels.common import (
    BlockSpecs,
    Settings,
    dot,
    for_each,
    for_each_query_block,
    kept_here,
    key_mask,
    logits_of,
    of_head,
    place_of,
    place_of_program,
    run,
)
from tupe_jax.kernels.single_block_backward import gradients


def single_block_attention(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias_HxSxS: jax.Array | None,
    is_token_BxS: jax.Array,
    seed: jax.Array | None,
    *,
    scale: float,
    rate: float,
    first_row: jax.Array | int = 0,
    first_head: jax.Array | int = 0,
) -> jax.Array:
    """`reference.attention`, fused; of a part of a batch that begins at `first_row`, `first_head`.

    Runs on TPUs; on a CPU it is interpreted, which is slow and meant for tests.
    """
    B, S, H, d = q_BxSxHxd.shape
    tiles = tiles_for(B, S, H, d)
    settings = Settings(tiles, scale, 0.0 if seed is None else rate)
    more_tokens, more_heads = tiles.length - S, tiles.num_heads - H

    def packed(x: jax.Array) -> jax.Array:
        padding = (0, 0), (0, more_tokens), (0, more_heads), (0, tiles.head_size - d)
        return jnp.pad(x, padding).reshape(B, tiles.length, -1)

    if bias_HxSxS is not None:
        bias_HxSxS = jnp.pad(bias_HxSxS, ((0, more_heads), (0, more_tokens), (0, more_tokens)))
    out = _fused(
        settings,
        packed(q_BxSxHxd),
        packed(k_BxSxHxd),
        packed(v_BxSxHxd),
        bias_HxSxS,
        key_mask(is_token_BxS, tiles.length),
        place_of(seed, first_row, first_head),
    )
    return out.reshape(B, tiles.length, tiles.num_heads, tiles.head_size)[:, :S, :H, :d]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(
    settings: Settings,
    q_BxSxF: jax.Array,
    k_BxSxF: jax.Array,
    v_BxSxF: jax.Array,
    bias_HxSxS: jax.Array | None,
    mask_Bx1xS: jax.Array,
    place_3: jax.Array,
) -> jax.Array:
    tiles = settings.tiles
    specs = BlockSpecs(tiles)
    biases = [] if bias_HxSxS is None else [bias_HxSxS]
    [out_BxSxF] = run(
        partial(_forward_kernel, settings, bias_HxSxS is not None),
        place_3,
        inputs=[q_BxSxF, k_BxSxF, v_BxSxF, mask_Bx1xS, *biases],
        in_specs=[specs.tokens] * 3 + [specs.mask] + [specs.bias] * len(biases),
        outputs=[jax.ShapeDtypeStruct(q_BxSxF.shape, q_BxSxF.dtype)],
        out_specs=[specs.tokens],
        grid=tiles.grid,
        vmem_bytes=forward_vmem_bytes(tiles, q_BxSxF.dtype.itemsize),
        products=2,
        tiles=tiles,
        name="attention_forward",
    )
    return out_BxSxF


def _forward(settings: Settings, *arrays: Any) -> tuple[jax.Array, tuple[Any, ...]]:
    return _fused(settings, *arrays), arrays


def _backward(settings: Settings, arrays: tuple[Any, ...], g: jax.Array) -> tuple[Any, ...]:
    q, k, v, bias, mask, place = arrays
    return (*gradients(settings, q, k, v, bias, mask, place, g), None, None)


_fused.defvjp(_forward, _backward)


def _forward_kernel(
    settings: Settings,
    has_bias: bool,
    place_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    bias_ref, out_ref = (refs[0], refs[1]) if has_bias else (None, refs[0])
    tiles, place = settings.tiles, place_of_program(settings, place_ref)

    def attend(row: Any, queries: Any) -> None:
        q, out = q_ref[row, queries], jnp.zeros((tiles.queries, tiles.features), jnp.float32)
        for head in range(tiles.heads):
            k, v = (of_head(tiles, head, x_ref[row]) for x_ref in (k_ref, v_ref))
            bias = None if bias_ref is None else bias_ref[head, queries]
            logits = logits_of(settings, q, k, bias, mask_ref[row])
            weights = jnp.exp(logits - logits.max(-1, keepdims=True))
            total = weights.sum(-1, keepdims=True)
            if settings.rate:
                kept = kept_here(settings, place, row, head, queries)
                weights = jnp.where(kept, weights, 0.0)
                total *= 1 - settings.rate
            out += dot(weights.astype(q.dtype), v) / total
        out_ref[row, queries] = out.astype(out_ref.dtype)

    for_each(tiles.rows, lambda row: for_each_query_block(tiles, partial(attend, row)))

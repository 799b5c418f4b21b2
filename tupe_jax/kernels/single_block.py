"""Attention with a batch-shared bias as one Pallas TPU kernel: no scores in HBM.

A program holds the scores of its queries for all keys, so softmax is plain. An attention window is
a mask. The backward pass
recomputes what it needs from q, k and v; nothing else is kept. The gradient of the bias is summed
over the batch in VMEM: its output block stays while the batch passes by.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.block_sizes import backward_vmem_bytes, forward_vmem_bytes, tiles_for
from tupe_jax.kernels.common import (
    BlockSpecs,
    KernelSettings,
    dot,
    dropout_origin,
    for_each,
    for_each_query_block,
    in_window_here,
    keep,
    kept_here,
    key_mask,
    logits_of,
    of_head,
    origin_of_program,
    run,
)


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
    window: int = 0,
    first_sequence: jax.Array | int = 0,
    first_head: jax.Array | int = 0,
) -> jax.Array:
    """`reference.attention`, fused, of a part of a batch.

    The part begins at `first_sequence` and `first_head`. The kernel runs on TPUs; on a CPU it is
    interpreted, which is slow and meant for tests.
    """
    B, S, H, d = q_BxSxHxd.shape
    tiles = tiles_for(B, S, H, d)
    settings = KernelSettings(tiles, scale, 0.0 if seed is None else rate, window)
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
        dropout_origin(seed, first_sequence, first_head),
    )
    return out.reshape(B, tiles.length, tiles.num_heads, tiles.head_size)[:, :S, :H, :d]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(
    settings: KernelSettings,
    q_BxSxF: jax.Array,
    k_BxSxF: jax.Array,
    v_BxSxF: jax.Array,
    bias_HxSxS: jax.Array | None,
    mask_Bx1xS: jax.Array,
    origin_3: jax.Array,
) -> jax.Array:
    tiles = settings.tiles
    specs = BlockSpecs(tiles)
    biases = [] if bias_HxSxS is None else [bias_HxSxS]
    [out_BxSxF] = run(
        partial(_forward_kernel, settings, bias_HxSxS is not None),
        origin_3,
        inputs=[q_BxSxF, k_BxSxF, v_BxSxF, mask_Bx1xS, *biases],
        in_specs=[specs.tokens] * 3 + [specs.mask] + [specs.bias] * len(biases),
        outputs=[jax.ShapeDtypeStruct(q_BxSxF.shape, q_BxSxF.dtype)],
        out_specs=[specs.tokens],
        grid=tiles.grid,
        vmem_bytes=forward_vmem_bytes(tiles, q_BxSxF.dtype.itemsize),
        products=2,
        pairs=tiles.length**2,
        tiles=tiles,
        name="attention_forward",
    )
    return out_BxSxF


def _forward(settings: KernelSettings, *arrays: Any) -> tuple[jax.Array, tuple[Any, ...]]:
    return keep(_fused(settings, *arrays)), arrays


def _backward(settings: KernelSettings, arrays: tuple[Any, ...], g: jax.Array) -> tuple[Any, ...]:
    q, k, v, bias, mask, origin = arrays
    return (*_gradients(settings, q, k, v, bias, mask, origin, g), None, None)


_fused.defvjp(_forward, _backward)


def _forward_kernel(
    settings: KernelSettings,
    has_bias: bool,
    origin_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    bias_ref, out_ref = (refs[0], refs[1]) if has_bias else (None, refs[0])
    tiles, origin = settings.tiles, origin_of_program(settings, origin_ref)

    def attend(sequence: Any, queries: Any) -> None:
        q, out = q_ref[sequence, queries], jnp.zeros((tiles.queries, tiles.features), jnp.float32)
        for head in range(tiles.heads):
            k, v = (of_head(tiles, head, x_ref[sequence]) for x_ref in (k_ref, v_ref))
            bias = None if bias_ref is None else bias_ref[head, queries]
            logits = logits_of(settings.scale, q, k, bias, mask_ref[sequence])
            logits = in_window_here(settings, logits, queries)
            weights = jnp.exp(logits - logits.max(-1, keepdims=True))
            total = weights.sum(-1, keepdims=True)
            if settings.rate:
                kept = kept_here(settings, origin, sequence, head, queries)
                weights = jnp.where(kept, weights, 0.0)
                total *= 1 - settings.rate
            out += dot(weights.astype(q.dtype), v) / total
        out_ref[sequence, queries] = out.astype(out_ref.dtype)

    for_each(
        tiles.sequences, lambda sequence: for_each_query_block(tiles, partial(attend, sequence))
    )


def _gradients(
    settings: KernelSettings,
    q_BxSxF: jax.Array,
    k_BxSxF: jax.Array,
    v_BxSxF: jax.Array,
    bias_HxSxS: jax.Array | None,
    mask_Bx1xS: jax.Array,
    origin_3: jax.Array,
    g_BxSxF: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """(dq, dk, dv, dbias) for a gradient g of the output."""
    tiles = settings.tiles
    specs = BlockSpecs(tiles)
    tokens = jax.ShapeDtypeStruct(q_BxSxF.shape, q_BxSxF.dtype)
    biases = [] if bias_HxSxS is None else [bias_HxSxS]
    dq, dk, dv, *dbias = run(
        partial(_backward_kernel, settings, bias_HxSxS is not None),
        origin_3,
        inputs=[q_BxSxF, k_BxSxF, v_BxSxF, g_BxSxF, mask_Bx1xS, *biases],
        in_specs=[specs.tokens] * 4 + [specs.mask] + [specs.bias] * len(biases),
        outputs=[tokens] * 3 + [jax.ShapeDtypeStruct(b.shape, jnp.float32) for b in biases],
        out_specs=[specs.tokens] * 3 + [specs.bias_gradient] * len(biases),
        grid=tiles.grid,
        vmem_bytes=backward_vmem_bytes(tiles, q_BxSxF.dtype.itemsize),
        products=5,
        pairs=tiles.length**2,
        tiles=tiles,
        name="attention_backward",
        scratch=[pltpu.VMEM((tiles.length, tiles.features), jnp.float32)] * 2,
    )
    return dq, dk, dv, (None if bias_HxSxS is None else dbias[0].astype(bias_HxSxS.dtype))


def _backward_kernel(
    settings: KernelSettings,
    has_bias: bool,
    origin_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    g_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    *others, dk_sum_ref, dv_sum_ref = refs
    bias_ref, dq_ref, dk_ref, dv_ref, dbias_ref = others if has_bias else (None, *others, None)
    tiles, origin = settings.tiles, origin_of_program(settings, origin_ref)
    if has_bias:

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            dbias_ref[...] = jnp.zeros_like(dbias_ref)

    def add_gradients(sequence: Any, queries: Any) -> None:
        """Add the dq of a block of queries, and their part of dk, dv and dbias."""
        v, dq = v_ref[sequence], jnp.zeros((tiles.queries, tiles.features), jnp.float32)
        for head in range(tiles.heads):
            k = of_head(tiles, head, k_ref[sequence])
            q, g = (of_head(tiles, head, x_ref[sequence, queries]) for x_ref in (q_ref, g_ref))
            bias = None if bias_ref is None else bias_ref[head, queries]
            logits = logits_of(settings.scale, q, k, bias, mask_ref[sequence])
            logits = in_window_here(settings, logits, queries)
            weights = jnp.exp(logits - logits.max(-1, keepdims=True))
            weights *= 1 / weights.sum(-1, keepdims=True)
            used, dweights = weights, dot(g, v, contract=(1, 1))
            if settings.rate:
                kept = kept_here(settings, origin, sequence, head, queries)
                factor = 1 / (1 - settings.rate)
                used = jnp.where(kept, weights * factor, 0.0)
                dweights = jnp.where(kept, dweights * factor, 0.0)
            dv_sum_ref[...] += dot(used.astype(g.dtype), g, contract=(0, 0))
            mean = (weights * dweights).sum(-1, keepdims=True)
            dlogits = weights * (dweights - mean)
            if dbias_ref is not None:
                dbias_ref[head, queries] += dlogits
            dscores = (dlogits * settings.scale).astype(q.dtype)
            dq += dot(dscores, k)
            dk_sum_ref[...] += dot(dscores, q, contract=(0, 0))
        dq_ref[sequence, queries] = dq.astype(dq_ref.dtype)

    def one_sequence(sequence: Any) -> None:
        dk_sum_ref[...] = jnp.zeros_like(dk_sum_ref)
        dv_sum_ref[...] = jnp.zeros_like(dv_sum_ref)
        for_each_query_block(tiles, partial(add_gradients, sequence))
        dk_ref[sequence] = dk_sum_ref[...].astype(dk_ref.dtype)
        dv_ref[sequence] = dv_sum_ref[...].astype(dv_ref.dtype)

    for_each(tiles.sequences, one_sequence)

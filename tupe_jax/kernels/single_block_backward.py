"""The gradients of fused attention: dq, dk, dv of every row, and dbias summed over the batch.

dbias stays in VMEM, in its output block, while the batch passes by.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.block_sizes import backward_vmem_bytes
from tupe_jax.kernels.common import (
    BlockSpecs,
    Settings,
    dot,
    for_each,
    for_each_query_block,
    kept_here,
    logits_of,
    of_head,
    place_of_program,
    run,
)


def gradients(
    settings: Settings,
    q_BxSxF: jax.Array,
    k_BxSxF: jax.Array,
    v_BxSxF: jax.Array,
    bias_HxSxS: jax.Array | None,
    mask_Bx1xS: jax.Array,
    place_3: jax.Array,
    g_BxSxF: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """(dq, dk, dv, dbias) for a gradient g of the output."""
    tiles = settings.tiles
    specs = BlockSpecs(tiles)
    tokens = jax.ShapeDtypeStruct(q_BxSxF.shape, q_BxSxF.dtype)
    biases = [] if bias_HxSxS is None else [bias_HxSxS]
    dq, dk, dv, *dbias = run(
        partial(_backward_kernel, settings, bias_HxSxS is not None),
        place_3,
        inputs=[q_BxSxF, k_BxSxF, v_BxSxF, g_BxSxF, mask_Bx1xS, *biases],
        in_specs=[specs.tokens] * 4 + [specs.mask] + [specs.bias] * len(biases),
        outputs=[tokens] * 3 + [jax.ShapeDtypeStruct(b.shape, jnp.float32) for b in biases],
        out_specs=[specs.tokens] * 3 + [specs.bias_gradient] * len(biases),
        grid=tiles.grid,
        vmem_bytes=backward_vmem_bytes(tiles, q_BxSxF.dtype.itemsize),
        products=5,
        tiles=tiles,
        name="attention_backward",
        scratch=[pltpu.VMEM((tiles.length, tiles.features), jnp.float32)] * 2,
    )
    return dq, dk, dv, (None if bias_HxSxS is None else dbias[0].astype(bias_HxSxS.dtype))


def _backward_kernel(
    settings: Settings,
    has_bias: bool,
    place_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    g_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    *others, dk_sum_ref, dv_sum_ref = refs
    bias_ref, dq_ref, dk_ref, dv_ref, dbias_ref = others if has_bias else (None, *others, None)
    tiles, place = settings.tiles, place_of_program(settings, place_ref)
    if has_bias:

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            dbias_ref[...] = jnp.zeros_like(dbias_ref)

    def add_gradients(row: Any, queries: Any) -> None:
        """Of a block of queries: their dq, and their part of dk, dv and dbias."""
        v, dq = v_ref[row], jnp.zeros((tiles.queries, tiles.features), jnp.float32)
        for head in range(tiles.heads):
            k = of_head(tiles, head, k_ref[row])
            q, g = (of_head(tiles, head, x_ref[row, queries]) for x_ref in (q_ref, g_ref))
            bias = None if bias_ref is None else bias_ref[head, queries]
            logits = logits_of(settings, q, k, bias, mask_ref[row])
            weights = jnp.exp(logits - logits.max(-1, keepdims=True))
            weights *= 1 / weights.sum(-1, keepdims=True)
            used, dweights = weights, dot(g, v, contract=(1, 1))
            if settings.rate:
                kept = kept_here(settings, place, row, head, queries)
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
        dq_ref[row, queries] = dq.astype(dq_ref.dtype)

    def one_row(row: Any) -> None:
        dk_sum_ref[...] = jnp.zeros_like(dk_sum_ref)
        dv_sum_ref[...] = jnp.zeros_like(dv_sum_ref)
        for_each_query_block(tiles, partial(add_gradients, row))
        dk_ref[row] = dk_sum_ref[...].astype(dk_ref.dtype)
        dv_ref[row] = dv_sum_ref[...].astype(dv_ref.dtype)

    for_each(tiles.rows, one_row)

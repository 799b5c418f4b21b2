"""The gradients of fused attention: dq, dk, dv of every row, and dbias summed over the batch.

dbias stays in VMEM, in its output block, while the batch passes by.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tupe_jax.kernels.fused import (
    BlockSpecs,
    Settings,
    dot,
    kept_here,
    logits_of,
    of_head,
    query_blocks,
    run,
)
from tupe_jax.kernels.tiles import backward_vmem_bytes


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
    )
    return dq, dk, dv, (None if bias_HxSxS is None else dbias[0].astype(bias_HxSxS.dtype))


def _backward_kernel(settings: Settings, has_bias: bool, place_ref: Any, q_ref: Any, k_ref: Any, v_ref: Any, g_ref: Any, mask_ref: Any, *refs: Any) -> None:  # fmt: skip
    bias_ref, dq_ref, dk_ref, dv_ref, dbias_ref = refs if has_bias else (None, *refs, None)
    tiles = settings.tiles
    if has_bias:

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            dbias_ref[...] = jnp.zeros_like(dbias_ref)

    for row in range(tiles.rows):
        k_heads = [of_head(tiles, head, k_ref[row]) for head in range(tiles.heads)]
        v = v_ref[row]
        dk = jnp.zeros((tiles.length, tiles.features), jnp.float32)
        dv = jnp.zeros((tiles.length, tiles.features), jnp.float32)
        for queries in query_blocks(tiles):
            dq = jnp.zeros((tiles.queries, tiles.features), jnp.float32)
            for head in range(tiles.heads):
                q = of_head(tiles, head, q_ref[row, queries])
                g = of_head(tiles, head, g_ref[row, queries])
                bias = None if bias_ref is None else bias_ref[head, queries]
                logits = logits_of(settings, q, k_heads[head], bias, mask_ref[row])
                weights = jnp.exp(logits - logits.max(-1, keepdims=True))
                weights *= 1 / weights.sum(-1, keepdims=True)
                dweights = dot(g, v, contract=(1, 1))
                used = weights
                if settings.rate:
                    kept = kept_here(settings, place_ref, row, head, queries)
                    factor = 1 / (1 - settings.rate)
                    used = jnp.where(kept, weights * factor, 0.0)
                    dweights = jnp.where(kept, dweights * factor, 0.0)
                dv += dot(used.astype(g.dtype), g, contract=(0, 0))
                mean = (weights * dweights).sum(-1, keepdims=True)
                dlogits = weights * (dweights - mean)
                if dbias_ref is not None:
                    dbias_ref[head, queries] += dlogits
                dscores = (dlogits * settings.scale).astype(q.dtype)
                dq += dot(dscores, k_heads[head])
                dk += dot(dscores, q, contract=(0, 0))
            dq_ref[row, queries] = dq.astype(dq_ref.dtype)
        dk_ref[row] = dk.astype(dk_ref.dtype)
        dv_ref[row] = dv.astype(dv_ref.dtype)

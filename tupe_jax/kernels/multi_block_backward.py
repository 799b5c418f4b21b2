"""The gradients of attention over long rows; those of the bias's factors are summed in VMEM.

Everything that the batch shares has an output block that stays while the batch passes by.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.block_sizes import LANES, Tiles, long_vmem_bytes
from tupe_jax.kernels.common import Settings, dot, of_head, run
from tupe_jax.kernels.diagonals import window_of_tile
from tupe_jax.kernels.multi_block_common import (
    BiasArrays,
    LongBlockSpecs,
    Program,
    bias_arrays,
    bias_names,
    key_block,
    long_kept,
    long_logits,
    places,
)


def gradients(
    settings: Settings,
    q_BxSxF: jax.Array,
    k_BxSxF: jax.Array,
    v_BxSxF: jax.Array,
    bias: BiasArrays,
    mask_Bx1xS: jax.Array,
    place_3: jax.Array,
    out_BxSxF: jax.Array,
    stats_BxGx2hxS: jax.Array,
    g_BxSxF: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, BiasArrays]:
    """(dq, dk, dv, dbias) for a gradient g of the output."""
    tiles = settings.tiles
    specs = LongBlockSpecs(tiles)
    names = bias_names(bias)
    learnable = [name for name in names if name != "row_factor_Sx1"]
    tokens = jax.ShapeDtypeStruct(q_BxSxF.shape, q_BxSxF.dtype)
    out_specs = {**specs.bias, "thetas_Hx2": specs.theta_gradient}
    shapes = {name: getattr(bias, name).shape for name in learnable}
    if "thetas_Hx2" in shapes:
        shapes["thetas_Hx2"] = (tiles.num_heads, 1, LANES)
    dq, dk, dv, *sums = run(
        partial(_backward_kernel, settings, names, learnable),
        place_3,
        inputs=[
            q_BxSxF, k_BxSxF, v_BxSxF, g_BxSxF, out_BxSxF, stats_BxGx2hxS, mask_Bx1xS,
            *bias_arrays(bias),
        ],
        in_specs=[
            specs.queries, *[specs.row] * 2, *[specs.queries] * 2, specs.stats, specs.mask,
            *specs.of_bias(bias),
        ],
        outputs=[tokens] * 3 + [jax.ShapeDtypeStruct(shapes[n], jnp.float32) for n in learnable],
        out_specs=[specs.queries, *[specs.row] * 2, *[out_specs[name] for name in learnable]],
        grid=specs.grid,
        vmem_bytes=long_vmem_bytes(tiles, q_BxSxF.dtype.itemsize, backward=True),
        products=5,
        tiles=tiles,
        name="long_attention_backward",
        scratch=[pltpu.VMEM((tiles.length, tiles.features), jnp.float32)] * 2,
    )  # fmt: skip
    dbias = dict(zip(learnable, sums, strict=True))
    if "thetas_Hx2" in dbias:
        # theta_1 is the same for a whole row of logits: softmax ignores it.
        theta_2_H = dbias["thetas_Hx2"][:, 0, 0]
        dbias["thetas_Hx2"] = jnp.stack([jnp.zeros_like(theta_2_H), theta_2_H], 1)
    if bias.row_factor_Sx1 is not None:
        dbias["row_factor_Sx1"] = jnp.zeros_like(bias.row_factor_Sx1)
    every = {name: dbias[name].astype(getattr(bias, name).dtype) for name in names}
    absent = dict.fromkeys(BiasArrays.__dataclass_fields__)
    return dq, dk, dv, BiasArrays(**{**absent, **every})


def _backward_kernel(
    settings: Settings,
    names: list[str],
    learnable: list[str],
    place_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    g_ref: Any,
    out_ref: Any,
    stats_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    bias = dict(zip(names, refs[: len(names)], strict=True))
    dq_ref, dk_ref, dv_ref, *sum_refs, dk_sum_ref, dv_sum_ref = refs[len(names) :]
    dbias = dict(zip(learnable, sum_refs, strict=True))
    tiles, program = settings.tiles, Program.of(settings, place_ref)
    blocks = tiles.length // tiles.queries
    first_row, last_block = pl.program_id(1) == 0, program.query_block == blocks - 1

    @pl.when(program.query_block == 0)
    def _() -> None:
        dk_sum_ref[...] = jnp.zeros_like(dk_sum_ref)
        dv_sum_ref[...] = jnp.zeros_like(dv_sum_ref)

    @pl.when(first_row & (program.query_block == 0))
    def _() -> None:
        for ref in sum_refs:
            ref[...] = jnp.zeros_like(ref)

    dq = jnp.zeros((tiles.queries, tiles.features), jnp.float32)
    for head in range(tiles.heads):
        q, g = (of_head(tiles, head, x_ref[0]) for x_ref in (q_ref, g_ref))
        largest, inverse_total = (
            _row_to_column(stats_ref[0, 0, pl.ds(2 * head + n, 1)]) for n in (0, 1)
        )
        mean = (g.astype(jnp.float32) * out_ref[0].astype(jnp.float32)).sum(-1, keepdims=True)

        def add_block(
            n: Any,
            dq: jax.Array,
            head: int = head,
            q: jax.Array = q,
            g: jax.Array = g,
            largest: jax.Array = largest,
            inverse_total: jax.Array = inverse_total,
            mean: jax.Array = mean,
        ) -> jax.Array:
            keys = key_block(tiles, n)
            k = of_head(tiles, head, k_ref[0, keys])
            logits = long_logits(settings, program, bias, q, k, mask_ref[0, :, keys], head, n)
            weights = jnp.exp(logits - largest) * inverse_total
            used, dweights = weights, dot(g, v_ref[0, keys], contract=(1, 1))
            if settings.rate:
                kept, factor = long_kept(settings, program, head, n), 1 / (1 - settings.rate)
                used = jnp.where(kept, weights * factor, 0.0)
                dweights = jnp.where(kept, dweights * factor, 0.0)
            dv_sum_ref[keys] += dot(used.astype(g.dtype), g, contract=(0, 0))
            dlogits = weights * (dweights - mean)
            dscores = (dlogits * settings.scale).astype(q.dtype)
            dk_sum_ref[keys] += dot(dscores, q, contract=(0, 0))
            _add_bias_gradients(tiles, program, bias, dbias, dlogits, q.dtype, head, n)
            return dq + dot(dscores, k)

        dq = jax.lax.fori_loop(0, blocks, add_block, dq)
    dq_ref[0] = dq.astype(dq_ref.dtype)

    @pl.when(last_block)
    def _() -> None:
        dk_ref[0] = dk_sum_ref[...].astype(dk_ref.dtype)
        dv_ref[0] = dv_sum_ref[...].astype(dv_ref.dtype)


def _add_bias_gradients(
    tiles: Tiles,
    program: Program,
    bias: dict[str, Any],
    dbias: dict[str, Any],
    dlogits: jax.Array,
    dtype: Any,
    head: int,
    n: Any,
) -> None:
    """Add what key block n gives to the gradient of each factor of the bias."""
    if "thetas_Hx2" in dbias:
        i, j = places(tiles, program, n)
        dtheta_2 = jnp.where((i > 0) & (j == 0), dlogits, 0.0).sum(0, keepdims=True)
        dbias["thetas_Hx2"][head] += dtheta_2[:, :LANES]
        dlogits = jnp.where((i == 0) | (j == 0), 0.0, dlogits)
    if "p_q_SxF" in dbias:
        queries, keys = key_block(tiles, program.query_block), key_block(tiles, n)
        p_q, p_k = (
            of_head(tiles, head, bias[name][block])
            for name, block in (("p_q_SxF", queries), ("p_k_SxF", keys))
        )
        dbias["p_q_SxF"][queries] += dot(dlogits.astype(dtype), p_k)
        dbias["p_k_SxF"][keys] += dot(dlogits.astype(dtype), p_q, contract=(0, 0))
    if "row_factor_Sx1" in bias:
        dlogits *= bias["row_factor_Sx1"][...]
    if "windows_HxNxW" in dbias:
        window = pl.ds(n - program.query_block + tiles.length // tiles.queries - 1, 1)
        dbias["windows_HxNxW"][head, window] += window_of_tile(dlogits)


def _row_to_column(x_1xN: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x_1xN, (LANES, x_1xN.shape[1])).T[:, :1]

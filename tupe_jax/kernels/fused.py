"""Attention with a batch-shared bias as one Pallas TPU kernel: no scores in HBM.

A program holds the whole rows of scores of its queries, so softmax is plain; what the backward pass
needs is computed again from q, k and v, and nothing else is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.dropout import is_kept
from tupe_jax.kernels.reference import MASKED
from tupe_jax.kernels.tiles import Tiles, forward_vmem_bytes, tiles_for

MIB = 2**20


@dataclass(frozen=True)
class Settings:
    """What a kernel knows when it is compiled."""

    tiles: Tiles
    scale: float
    rate: float
    """Of dropout; 0 for none."""


def fused_attention(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias_HxSxS: jax.Array | None,
    is_word_BxS: jax.Array,
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
        key_mask(is_word_BxS, tiles.length),
        place_of(seed, first_row, first_head),
    )
    return out.reshape(B, tiles.length, tiles.num_heads, tiles.head_size)[:, :S, :H, :d]


def key_mask(is_word_BxS: jax.Array, length: int) -> jax.Array:
    """What is added to the logits of keys, [B, 1, length].

    Keys that fill up the tile lie below masked ones: a row without words stays uniform over S.
    """
    mask_BxS = jnp.where(is_word_BxS, 0.0, MASKED)
    more = length - mask_BxS.shape[1]
    return jnp.pad(mask_BxS, ((0, 0), (0, more)), constant_values=2 * MASKED)[:, None]


def place_of(
    seed: jax.Array | None, first_row: jax.Array | int, first_head: jax.Array | int
) -> jax.Array:
    """The numbers dropout depends on, as the kernels read them: [3] int32."""
    numbers = (0 if seed is None else seed, first_row, first_head)
    place_3 = jnp.stack([jnp.asarray(x).astype(jnp.uint32) for x in numbers])
    return jax.lax.bitcast_convert_type(place_3, jnp.int32)


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
    from tupe_jax.kernels.fused_backward import gradients

    return (*gradients(settings, *arrays, g), None, None)


_fused.defvjp(_forward, _backward)


class BlockSpecs:
    """Which piece of an array the program (head block, batch block) sees."""

    def __init__(self, tiles: Tiles):
        T = tiles
        self.tokens = pl.BlockSpec((T.rows, T.length, T.features), lambda h, b, *_: (b, 0, h))
        self.mask = pl.BlockSpec((T.rows, 1, T.length), lambda h, b, *_: (b, 0, 0))
        # It changes once per pass over the batch: a second buffer to fetch ahead is not worth it.
        self.bias = pl.BlockSpec(
            (T.heads, T.length, T.length),
            lambda h, b, *_: (h, 0, 0),
            pipeline_mode=pl.Buffered(1),
        )
        self.bias_gradient = pl.BlockSpec((T.heads, T.length, T.length), lambda h, b, *_: (h, 0, 0))


def run(
    kernel: Any,
    place_3: jax.Array,
    *,
    inputs: Sequence[jax.Array],
    in_specs: Sequence[pl.BlockSpec],
    outputs: Sequence[jax.ShapeDtypeStruct],
    out_specs: Sequence[pl.BlockSpec],
    grid: tuple[int, ...],
    vmem_bytes: int,
    products: int,
    tiles: Tiles,
    name: str,
    scratch: Sequence[Any] = (),
) -> list[jax.Array]:
    """Call a kernel: compiled for TPUs, interpreted elsewhere, decided when XLA knows where."""
    arrays = [*inputs, *outputs]
    cost = pl.CostEstimate(
        flops=products * 2 * tiles.batch * tiles.num_heads * tiles.length**2 * tiles.head_size,
        transcendentals=tiles.batch * tiles.num_heads * tiles.length**2,
        bytes_accessed=sum(a.size * a.dtype.itemsize for a in arrays),
    )

    def call(*arrays: jax.Array, interpret: bool) -> list[jax.Array]:
        return list(
            pl.pallas_call(
                kernel,
                grid_spec=pltpu.PrefetchScalarGridSpec(
                    num_scalar_prefetch=1,
                    grid=grid,
                    in_specs=in_specs,
                    out_specs=out_specs,
                    scratch_shapes=scratch,
                ),
                out_shape=list(outputs),
                compiler_params=pltpu.CompilerParams(
                    dimension_semantics=("parallel",) + ("arbitrary",) * (len(grid) - 1),
                    vmem_limit_bytes=max(16 * MIB, vmem_bytes),
                ),
                cost_estimate=cost,
                interpret=interpret,
                name=name,
            )(*arrays)
        )

    result: list[jax.Array] = jax.lax.platform_dependent(
        place_3,
        *inputs,
        tpu=partial(call, interpret=False),
        default=partial(call, interpret=True),
    )
    return result


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


def for_each(count: int, do: Callable[[Any], None]) -> None:
    """Do(0), do(1), ...: as a loop in the compiled kernel if there are several."""
    if count == 1:
        do(0)
    else:
        jax.lax.fori_loop(0, count, lambda n, _: do(n), None)


def for_each_query_block(tiles: Tiles, do: Callable[[Any], None]) -> None:
    """Do(the block's place in the row) for each block of queries."""
    size = tiles.queries
    for_each(tiles.length // size, lambda n: do(pl.ds(pl.multiple_of(n * size, size), size)))


def of_head(tiles: Tiles, head: int, x_SxF: jax.Array) -> jax.Array:
    """One head's features, those of its neighbours zero."""
    if tiles.heads == 1:
        return x_SxF
    feature = jax.lax.broadcasted_iota(jnp.int32, x_SxF.shape, 1)
    first, end = head * tiles.head_size, (head + 1) * tiles.head_size
    return jnp.where((feature >= first) & (feature < end), x_SxF, jnp.zeros_like(x_SxF))


def logits_of(
    settings: Settings, q: jax.Array, k: jax.Array, bias: jax.Array | None, mask_1xS: jax.Array
) -> jax.Array:
    """The logits q k^T scale + bias, with padding masked, [queries, S] in float32."""
    logits = dot(q, k, contract=(1, 1)) * settings.scale + mask_1xS
    return logits if bias is None else logits + bias.astype(jnp.float32)


class Place(NamedTuple):
    """Where in the whole batch a program's part begins; dropout depends on it."""

    seed: jax.Array
    row: jax.Array
    head: jax.Array


def place_of_program(settings: Settings, place_ref: Any) -> Place:
    row = place_ref[1] + pl.program_id(1) * settings.tiles.rows
    return Place(place_ref[0], row, place_ref[2] + pl.program_id(0) * settings.tiles.heads)


def kept_here(settings: Settings, place: Place, row: Any, head: int, queries: Any) -> jax.Array:
    """Dropout's choice for this program's `row` and `head`, [queries, S]."""
    tiles = settings.tiles
    i = queries.start + jax.lax.broadcasted_iota(jnp.int32, (tiles.queries, 1), 0)
    j = jax.lax.broadcasted_iota(jnp.int32, (1, tiles.length), 1)
    return is_kept(place.seed, place.row + row, place.head + head, i, j, rate=settings.rate)


def dot(a: jax.Array, b: jax.Array, contract: tuple[int, int] = (1, 0)) -> jax.Array:
    """A product of matrices with a float32 result; of float32 factors in full precision."""
    exact = a.dtype == jnp.float32
    return jax.lax.dot_general(
        a,
        b,
        (((contract[0],), (contract[1],)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if exact else None,
        preferred_element_type=jnp.float32,
    )

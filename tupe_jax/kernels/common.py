"""Shared by all kernels: how they are called, and the steps they consist of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.block_sizes import Tiles
from tupe_jax.kernels.dropout import is_kept
from tupe_jax.kernels.reference import MASKED, masked_outside


@dataclass(frozen=True)
class KernelSettings:
    """The compile-time constants of a kernel."""

    tiles: Tiles
    scale: float
    rate: float
    """The dropout rate; 0: no dropout."""
    window: int
    """Query i attends to key j if |j - i| <= window / 2; 0: to all."""


def key_mask(is_token_BxS: jax.Array, length: int) -> jax.Array:
    """What is added to the logits of keys, [B, 1, length].

    Keys that pad the tile are below masked keys: a sequence of padding attends uniformly over S.
    """
    mask_BxS = jnp.where(is_token_BxS, 0.0, MASKED)
    more = length - mask_BxS.shape[1]
    return jnp.pad(mask_BxS, ((0, 0), (0, more)), constant_values=2 * MASKED)[:, None]


def dropout_origin(
    seed: jax.Array | None, first_sequence: jax.Array | int, first_head: jax.Array | int
) -> jax.Array:
    """The numbers dropout depends on, as the kernels read them: [3] int32."""
    numbers = (0 if seed is None else seed, first_sequence, first_head)
    origin_3 = jnp.stack([jnp.asarray(x).astype(jnp.uint32) for x in numbers])
    return jax.lax.bitcast_convert_type(origin_3, jnp.int32)


class BlockSpecs:
    """Which block of an array the program (head block, batch block) reads or writes."""

    def __init__(self, tiles: Tiles):
        T = tiles
        self.tokens = pl.BlockSpec((T.sequences, T.length, T.features), lambda h, b, *_: (b, 0, h))
        self.mask = pl.BlockSpec((T.sequences, 1, T.length), lambda h, b, *_: (b, 0, 0))
        # It changes once per pass over the batch: a second buffer to fetch ahead is not worth it.
        self.bias = pl.BlockSpec(
            (T.heads, T.length, T.length),
            lambda h, b, *_: (h, 0, 0),
            pipeline_mode=pl.Buffered(1),
        )
        self.bias_gradient = pl.BlockSpec((T.heads, T.length, T.length), lambda h, b, *_: (h, 0, 0))


def run(
    kernel: Any,
    origin_3: jax.Array,
    *,
    inputs: Sequence[jax.Array],
    in_specs: Sequence[pl.BlockSpec],
    outputs: Sequence[jax.ShapeDtypeStruct],
    out_specs: Sequence[pl.BlockSpec],
    grid: tuple[int, ...],
    vmem_bytes: int,
    products: int,
    pairs: int,
    tiles: Tiles,
    name: str,
    scratch: Sequence[Any] = (),
) -> list[jax.Array]:
    """Call a kernel: compiled for TPUs, interpreted elsewhere, decided when XLA knows where.

    For XLA's estimate of the cost: it computes `products` matrix products over `pairs` pairs of a
    query and a key.
    """
    arrays: list[Any] = [*inputs, *outputs]
    cost = pl.CostEstimate(
        flops=products * 2 * tiles.batch * tiles.num_heads * pairs * tiles.head_size,
        transcendentals=tiles.batch * tiles.num_heads * pairs,
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
                    dimension_semantics=_order(len(grid)),
                    vmem_limit_bytes=max(16 * 2**20, vmem_bytes),
                ),
                cost_estimate=cost,
                interpret=interpret,
                name=name,
            )(*arrays)
        )

    result: list[jax.Array] = jax.lax.platform_dependent(
        origin_3,
        *inputs,
        tpu=partial(call, interpret=False),
        default=partial(call, interpret=True),
    )
    return result


def keep(result: jax.Array) -> jax.Array:
    """A result of the forward kernel, named so that a remat policy can keep it.

    JAX's policies for products do not see those in a kernel.
    """
    named: jax.Array = checkpoint_name(result, "attention")
    return named


def _order(axes: int) -> tuple[Any, ...]:
    """Head blocks are independent; the rest of the grid shares sums and is taken in order."""
    return "parallel", *["arbitrary"] * (axes - 1)


def for_each(count: int, do: Callable[[Any], None]) -> None:
    """Call do(0), do(1), ...; if there are several, as a loop in the compiled kernel."""
    if count == 1:
        do(0)
    else:
        jax.lax.fori_loop(0, count, lambda n, _: do(n), None)


def for_each_query_block(tiles: Tiles, do: Callable[[Any], None]) -> None:
    """Do(the slice of the block) for each block of queries."""
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
    scale: float, q: jax.Array, k: jax.Array, bias: jax.Array | None, mask_1xS: jax.Array
) -> jax.Array:
    """The logits q k^T scale + bias, with padding masked, [queries, S] in float32."""
    logits = dot(q, k, contract=(1, 1)) * scale + mask_1xS
    return logits if bias is None else logits + bias.astype(jnp.float32)


class DropoutOrigin(NamedTuple):
    """The first sequence and head of a program in the whole batch; dropout depends on them."""

    seed: jax.Array
    sequence: jax.Array
    head: jax.Array


def origin_of_program(settings: KernelSettings, origin_ref: Any) -> DropoutOrigin:
    sequence = origin_ref[1] + pl.program_id(1) * settings.tiles.sequences
    return DropoutOrigin(
        origin_ref[0], sequence, origin_ref[2] + pl.program_id(0) * settings.tiles.heads
    )


def kept_here(
    settings: KernelSettings, origin: DropoutOrigin, sequence: Any, head: int, queries: Any
) -> jax.Array:
    """Dropout's choice for this program's `row` and `head`, [queries, S]."""
    i, j = _positions(settings.tiles, queries)
    return is_kept(
        origin.seed, origin.sequence + sequence, origin.head + head, i, j, rate=settings.rate
    )


def in_window_here(settings: KernelSettings, logits: jax.Array, queries: Any) -> jax.Array:
    """The logits of a block of queries, [queries, S], without weight outside the window."""
    return masked_outside(logits, *_positions(settings.tiles, queries), settings.window)


def _positions(tiles: Tiles, queries: Any) -> tuple[jax.Array, jax.Array]:
    """The positions of a block of queries, [queries, 1], and of all keys, [1, S]."""
    i = queries.start + jax.lax.broadcasted_iota(jnp.int32, (tiles.queries, 1), 0)
    return i, jax.lax.broadcasted_iota(jnp.int32, (1, tiles.length), 1)


def dot(a: jax.Array, b: jax.Array, contract: tuple[int, int] = (1, 0)) -> jax.Array:
    """A product of matrices with a float32 result; of float32 factors in full precision.

    It ignores `jax.default_matmul_precision`: the TPU compiler refuses "highest" for bfloat16.
    """
    full = a.dtype == jnp.float32
    return jax.lax.dot_general(
        a,
        b,
        (((contract[0],), (contract[1],)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if full else jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )

"""The four kernels of attention on GPUs, as functions of one program's blocks.

    kernel                 a program writes                       and loops over
    gpu_attention_forward  a block of queries: output            keys
    gpu_attention_dq       a block of queries: dq                keys
    gpu_attention_dkv      a block of keys: dk and dv            queries
    gpu_attention_dbias    a block of the bias of a head: dbias  sequences

A GPU runs the programs of a grid in parallel and in any order, so two programs must not write the
same block. Therefore the backward pass consists of three kernels, each of which recomputes the
scores. (TPU kernels accumulate in a block over several programs; on a GPU that would be a race.)

The forward kernel stores each query's largest logit and the reciprocal of the sum of its
exponentials as two numbers. Their combination, the logarithm of the sum, would lose the sum for a
sequence of padding, whose logits are all -1e30.

With an attention window the loops over keys and queries pass over the blocks that the window
touches, and the programs of dbias outside the window write zeros.

`gpu.py` selects the blocks that a program sees.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tupe_jax.kernels.common import DropoutOrigin, dot, logits_of
from tupe_jax.kernels.dropout import is_kept
from tupe_jax.kernels.reference import masked_outside
from tupe_jax.kernels.window import blocks_in_window

ENOUGH_PROGRAMS = 512
"""Several per processor of a GPU; if there are fewer, programs share the sequences."""

MOST_PARTS = 16
"""Of the bias gradient, so that it does not take as much memory as the scores."""


@dataclass(frozen=True)
class GpuSettings:
    """The compile-time constants of the kernels. Lengths are padded to whole blocks."""

    batch: int
    length: int
    num_heads: int
    head_size: int
    """A power of two."""
    block: int
    """The number of queries, and of keys, of a tile of scores."""
    dkv_block: int
    """The same in the kernel of dk and dv, which holds two float32 sums."""
    scale: float
    rate: float
    """The dropout rate; 0: no dropout."""
    window: int
    """Query i attends to key j if |j - i| <= window / 2; 0: to all."""

    def blocks_in_window(self, n: Any, block: int) -> tuple[Any, Any]:
        """The bounds of a loop over the blocks that block n has in its window."""
        return blocks_in_window(n, self.length, block, self.window)

    @property
    def bias_gradient_parts(self) -> int:
        """The number of parts of the batch over which the bias gradient is summed separately."""
        programs = self.num_heads * (self.length // self.block) ** 2
        wanted = math.ceil(ENOUGH_PROGRAMS / programs)
        most = min(2 * wanted - 1, MOST_PARTS, self.batch)
        return max(n for n in range(1, most + 1) if self.batch % n == 0)


def gpu_attention_forward(
    settings: GpuSettings,
    origin_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    mask_ref: Any,
    *refs: Any,
) -> None:
    """Online softmax over blocks of keys."""
    *biases, out_ref, largest_ref, inverse_total_ref = refs
    size, q = settings.block, q_ref[...]
    origin = _origin(origin_ref, sequence=pl.program_id(2), head=pl.program_id(1))
    first_query = pl.program_id(0) * size

    def add_keys(n: Any, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        largest, total, out = sums
        keys = pl.ds(n * size, size)
        bias = biases[0][:, keys] if biases else None
        bias = _in_window(settings, bias, first_query, n * size, size)
        logits = logits_of(settings.scale, q, k_ref[keys], bias, mask_ref[keys][None])
        new_largest = jnp.maximum(largest, logits.max(1))
        weights = jnp.exp(logits - new_largest[:, None])
        correction = jnp.exp(largest - new_largest)
        total = total * correction + weights.sum(1)
        if settings.rate:
            weights = jnp.where(_kept(settings, origin, first_query, n * size, size), weights, 0.0)
        v = v_ref[keys]
        out = out * correction[:, None] + dot(weights.astype(v.dtype), v)
        return new_largest, total, out

    sums = (
        jnp.full((size,), -jnp.inf, jnp.float32),
        jnp.zeros((size,), jnp.float32),
        jnp.zeros((size, settings.head_size), jnp.float32),
    )
    bounds = settings.blocks_in_window(pl.program_id(0), size)
    largest, total, out = jax.lax.fori_loop(*bounds, add_keys, sums)
    inverse_total = 1 / total
    out_ref[...] = (out * (inverse_total / (1 - settings.rate))[:, None]).astype(out_ref.dtype)
    largest_ref[...] = largest
    inverse_total_ref[...] = inverse_total


def gpu_attention_dq(settings: GpuSettings, origin_ref: Any, *refs: Any) -> None:
    """The gradient of a block of queries."""
    inputs, dq_ref = BackwardInputs(*refs[:-1]), refs[-1]
    size, queries = settings.block, inputs.queries()
    origin = _origin(origin_ref, sequence=pl.program_id(2), head=pl.program_id(1))
    first_query = pl.program_id(0) * size

    def add_keys(n: Any, dq: jax.Array) -> jax.Array:
        block = pl.ds(n * size, size)
        keys, bias = inputs.keys(block), inputs.bias(slice(None), block)
        bias = _in_window(settings, bias, first_query, n * size, size)
        _, dlogits = _of_tile(settings, origin, queries, keys, bias, first_query, n * size)
        return dq + dot(dlogits.astype(keys.k.dtype), keys.k)

    zeros = jnp.zeros((size, settings.head_size), jnp.float32)
    dq = jax.lax.fori_loop(*settings.blocks_in_window(pl.program_id(0), size), add_keys, zeros)
    dq_ref[...] = (dq * settings.scale).astype(dq_ref.dtype)


def gpu_attention_dkv(settings: GpuSettings, origin_ref: Any, *refs: Any) -> None:
    """The gradients of a block of keys and values."""
    inputs, (dk_ref, dv_ref) = BackwardInputs(*refs[:-2]), refs[-2:]
    size, keys = settings.dkv_block, inputs.keys()
    origin = _origin(origin_ref, sequence=pl.program_id(2), head=pl.program_id(1))
    first_key = pl.program_id(0) * size

    def add_queries(n: Any, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        block = pl.ds(n * size, size)
        queries, bias = inputs.queries(block), inputs.bias(block, slice(None))
        bias = _in_window(settings, bias, n * size, first_key, size)
        used, dlogits = _of_tile(settings, origin, queries, keys, bias, n * size, first_key)
        dk, dv = sums
        dv += dot(used.astype(queries.g.dtype).T, queries.g)
        return dk + dot(dlogits.astype(queries.q.dtype).T, queries.q), dv

    zeros = jnp.zeros((size, settings.head_size), jnp.float32)
    bounds = settings.blocks_in_window(pl.program_id(0), size)
    dk, dv = jax.lax.fori_loop(*bounds, add_queries, (zeros, zeros))
    dk_ref[...] = (dk * settings.scale).astype(dk_ref.dtype)
    dv_ref[...] = dv.astype(dv_ref.dtype)


def gpu_attention_dbias(settings: GpuSettings, origin_ref: Any, *refs: Any) -> None:
    """The gradient of a block of a head's bias, summed over a part of the batch."""
    inputs, dbias_ref = BackwardInputs(*refs[:-1]), refs[-1]
    size, parts = settings.block, settings.bias_gradient_parts
    sequences = settings.batch // parts
    head, part = jax.lax.div(pl.program_id(2), parts), jax.lax.rem(pl.program_id(2), parts)
    origin = _origin(origin_ref, sequence=part * sequences, head=head)
    first_query, first_key = pl.program_id(1) * size, pl.program_id(0) * size
    bias = _in_window(settings, inputs.bias(), first_query, first_key, size)

    def add_sequence(n: Any, dbias: jax.Array) -> jax.Array:
        queries, keys = inputs.queries(n), inputs.keys(n)
        here = origin._replace(sequence=origin.sequence + n)
        return dbias + _of_tile(settings, here, queries, keys, bias, first_query, first_key)[1]

    zeros = jnp.zeros((size, size), jnp.float32)
    count: Any = sequences
    if settings.window:
        first, end = settings.blocks_in_window(pl.program_id(1), size)
        is_in_window = (first <= pl.program_id(0)) & (pl.program_id(0) < end)
        # Not `jnp.where`: JAX gives the constants in it the type of the condition on GPUs.
        count = sequences * is_in_window.astype(jnp.int32)
    dbias_ref[...] = jax.lax.fori_loop(0, count, add_sequence, zeros)


class Queries(NamedTuple):
    """A block of queries, with what the backward pass needs of each query."""

    q: jax.Array
    g: jax.Array
    largest: jax.Array
    inverse_total: jax.Array
    mean: jax.Array
    """The mean of the gradients of a query's weights, weighted by these weights: sum(out g)."""


class Keys(NamedTuple):
    """A block of keys and their values."""

    k: jax.Array
    v: jax.Array
    mask: jax.Array


@dataclass(frozen=True)
class BackwardInputs:
    """The inputs of the three backward kernels, which read different blocks of them."""

    q: Any
    g: Any
    k: Any
    v: Any
    mask: Any
    largest: Any
    inverse_total: Any
    mean: Any
    bias_ref: Any = None

    def queries(self, index: Any = ...) -> Queries:
        refs = self.q, self.g, self.largest, self.inverse_total, self.mean
        return Queries(*(ref[index] for ref in refs))

    def keys(self, index: Any = ...) -> Keys:
        return Keys(*(ref[index] for ref in (self.k, self.v, self.mask)))

    def bias(self, *index: Any) -> jax.Array | None:
        return None if self.bias_ref is None else self.bias_ref[index or ...]


def _of_tile(
    settings: GpuSettings,
    origin: DropoutOrigin,
    queries: Queries,
    keys: Keys,
    bias: jax.Array | None,
    first_query: Any,
    first_key: Any,
) -> tuple[jax.Array, jax.Array]:
    """Weights after dropout and gradients of the logits, for a block of queries and one of keys."""
    logits = logits_of(settings.scale, queries.q, keys.k, bias, keys.mask[None])
    weights = jnp.exp(logits - queries.largest[:, None]) * queries.inverse_total[:, None]
    used, dweights = weights, dot(queries.g, keys.v, contract=(1, 1))
    if settings.rate:
        kept = _kept(settings, origin, first_query, first_key, logits.shape[0])
        factor = 1 / (1 - settings.rate)
        used = jnp.where(kept, weights * factor, 0.0)
        dweights = jnp.where(kept, dweights * factor, 0.0)
    return used, weights * (dweights - queries.mean[:, None])


def _origin(origin_ref: Any, sequence: Any, head: Any) -> DropoutOrigin:
    """The origin of dropout for a program with this sequence and head on this device."""
    return DropoutOrigin(origin_ref[0], origin_ref[1] + sequence, origin_ref[2] + head)


def _in_window(
    settings: GpuSettings, bias: jax.Array | None, first_query: Any, first_key: Any, size: int
) -> jax.Array | None:
    """The bias of a tile, which masks pairs outside the window."""
    if not settings.window:
        return bias
    if bias is None:
        bias = jnp.zeros((size, size), jnp.float32)
    return masked_outside(bias, *_positions(first_query, first_key, size), settings.window)


def _positions(first_query: Any, first_key: Any, size: int) -> tuple[jax.Array, jax.Array]:
    """The positions of the queries and keys of a tile, [size, 1] and [1, size]."""
    return first_query + jnp.arange(size)[:, None], first_key + jnp.arange(size)[None]


def _kept(
    settings: GpuSettings, origin: DropoutOrigin, first_query: Any, first_key: Any, size: int
) -> jax.Array:
    """Which weights of a tile dropout keeps."""
    i, j = _positions(first_query, first_key, size)
    return is_kept(origin.seed, origin.sequence, origin.head, i, j, rate=settings.rate)

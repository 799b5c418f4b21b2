"""Attention with a batch-shared bias for GPUs: Pallas kernels, which Triton compiles.

The kernels are in `gpu_kernels.py`. This file assigns blocks of the arrays to their programs and
calls them. Only `_run` depends on Triton.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from tupe_jax.kernels.block_sizes import power_of_two, round_up
from tupe_jax.kernels.common import dropout_origin, keep, key_mask
from tupe_jax.kernels.gpu_kernels import (
    GpuSettings,
    gpu_attention_dbias,
    gpu_attention_dkv,
    gpu_attention_dq,
    gpu_attention_forward,
)

_SMALLEST, _BLOCK = 16, 64
"""Sizes of a block of queries or keys: the least for tensor cores, the most for registers."""
_WARPS, _STAGES = 4, 2


def settings_for(
    batch: int,
    length: int,
    num_heads: int,
    head_size: int,
    *,
    scale: float,
    rate: float,
    window: int = 0,
) -> GpuSettings:
    """Block sizes for these arrays that spill no register in bfloat16."""
    head_size = max(_SMALLEST, power_of_two(head_size))
    block = max(_SMALLEST, min(power_of_two(length), _BLOCK))
    return GpuSettings(
        batch=batch,
        length=round_up(length, block),
        num_heads=num_heads,
        head_size=head_size,
        block=block,
        dkv_block=block if head_size < 128 else min(block, _BLOCK // 2),
        scale=scale,
        rate=rate,
        window=window,
    )


def gpu_attention(
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
    """`reference.attention` as fused kernels, for a part of a batch.

    The part begins at `first_sequence` and `first_head`. Arrays are padded to whole blocks first,
    which costs nothing where the length is a multiple of 64 and the head size a power of two. The
    kernels run on NVIDIA GPUs; elsewhere they are interpreted, which is slow and meant for tests.
    """
    B, S, H, d = q_BxSxHxd.shape
    rate = 0.0 if seed is None else rate
    settings = settings_for(B, S, H, d, scale=scale, rate=rate, window=window)
    more_tokens, more_features = settings.length - S, settings.head_size - d

    def padded(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, 0), (0, more_tokens), (0, 0), (0, more_features)))

    if bias_HxSxS is not None:
        bias_HxSxS = jnp.pad(bias_HxSxS, ((0, 0), (0, more_tokens), (0, more_tokens)))
    out = _fused(
        settings,
        padded(q_BxSxHxd),
        padded(k_BxSxHxd),
        padded(v_BxSxHxd),
        bias_HxSxS,
        key_mask(is_token_BxS, settings.length)[:, 0],
        dropout_origin(seed, first_sequence, first_head),
    )
    return out[:, :S, :, :d]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(settings: GpuSettings, *arrays: Any) -> jax.Array:
    return _forward(settings, *arrays)[0]


def _forward(
    settings: GpuSettings,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bias: jax.Array | None,
    mask: jax.Array,
    origin: jax.Array,
) -> tuple[jax.Array, tuple[Any, ...]]:
    s = settings
    blocks = BlocksOfProgram(None, s.block, s.length, lambda i, h, b: (b, i, 0, h))
    per_query = jax.ShapeDtypeStruct((s.batch, s.num_heads, s.length), jnp.float32)
    out, largest, inverse_total = _run(
        partial(gpu_attention_forward, s),
        origin,
        inputs=[q, k, v, mask, *([] if bias is None else [bias])],
        in_specs=[
            blocks.of_queries(s),
            blocks.of_keys(s),
            blocks.of_keys(s),
            blocks.of_mask,
            *([] if bias is None else [blocks.of_bias]),
        ],
        outputs=[jax.ShapeDtypeStruct(q.shape, q.dtype), per_query, per_query],
        out_specs=[blocks.of_queries(s), blocks.per_query, blocks.per_query],
        grid=(s.length // s.block, s.num_heads, s.batch),
    )
    out, largest, inverse_total = keep(out), keep(largest), keep(inverse_total)
    return out, (q, k, v, bias, mask, origin, out, largest, inverse_total)


def _backward(settings: GpuSettings, kept: tuple[Any, ...], g: jax.Array) -> tuple[Any, ...]:
    s = settings
    q, k, v, bias, mask, origin, out, largest, inverse_total = kept
    mean = jnp.einsum("bihd,bihd->bhi", out, g, preferred_element_type=jnp.float32)
    per_query = [largest, inverse_total, mean]

    def gradients(
        kernel: Callable[..., None],
        blocks: BlocksOfProgram,
        grid: tuple[int, ...],
        outputs: Sequence[jax.ShapeDtypeStruct],
        out_specs: Sequence[pl.BlockSpec],
    ) -> list[jax.Array]:
        queries, keys = blocks.of_queries(s), blocks.of_keys(s)
        return _run(
            partial(kernel, s),
            origin,
            inputs=[q, g, k, v, mask, *per_query, *([] if bias is None else [bias])],
            in_specs=[
                *[queries, queries, keys, keys, blocks.of_mask],
                *[blocks.per_query] * 3,
                *([] if bias is None else [blocks.of_bias]),
            ],
            outputs=outputs,
            out_specs=out_specs,
            grid=grid,
        )

    tokens = jax.ShapeDtypeStruct(q.shape, q.dtype)
    by_query = BlocksOfProgram(None, s.block, s.length, lambda i, h, b: (b, i, 0, h))
    by_key = BlocksOfProgram(None, s.length, s.dkv_block, lambda j, h, b: (b, 0, j, h))
    grid = s.length // s.block, s.num_heads, s.batch
    dkv_grid = s.length // s.dkv_block, s.num_heads, s.batch
    [dq] = gradients(gpu_attention_dq, by_query, grid, [tokens], [by_query.of_queries(s)])
    dk, dv = gradients(gpu_attention_dkv, by_key, dkv_grid, [tokens] * 2, [by_key.of_keys(s)] * 2)
    if bias is None:
        return dq, dk, dv, None, None, None
    parts = s.bias_gradient_parts
    by_tile = BlocksOfProgram(
        s.batch // parts,
        s.block,
        s.block,
        lambda j, i, hp: (jax.lax.rem(hp, parts), i, j, jax.lax.div(hp, parts)),
    )
    [dbias_PxHxSxS] = gradients(
        gpu_attention_dbias,
        by_tile,
        (s.length // s.block, s.length // s.block, s.num_heads * parts),
        [jax.ShapeDtypeStruct((parts, *bias.shape), jnp.float32)],
        [by_tile.of_bias_gradient],
    )
    return dq, dk, dv, dbias_PxHxSxS.sum(0).astype(bias.dtype), None, None


_fused.defvjp(_forward, _backward)


# --------------------------------------------------------------------------------- calling kernels


@dataclass(frozen=True)
class BlocksOfProgram:
    """Which block of each array a program of the grid reads or writes."""

    sequences: int | None
    """None for one, without an axis."""
    queries: int
    keys: int
    index: Callable[..., tuple[Any, Any, Any, Any]]
    """Maps a program's index in the grid to its blocks of (sequences, queries, keys, heads)."""

    def of_queries(self, settings: GpuSettings) -> pl.BlockSpec:
        return self._spec((self.sequences, self.queries, None, settings.head_size), "bih0")

    def of_keys(self, settings: GpuSettings) -> pl.BlockSpec:
        return self._spec((self.sequences, self.keys, None, settings.head_size), "bjh0")

    @property
    def of_mask(self) -> pl.BlockSpec:
        return self._spec((self.sequences, self.keys), "bj")

    @property
    def per_query(self) -> pl.BlockSpec:
        return self._spec((self.sequences, None, self.queries), "bhi")

    @property
    def of_bias(self) -> pl.BlockSpec:
        return self._spec((None, self.queries, self.keys), "hij")

    @property
    def of_bias_gradient(self) -> pl.BlockSpec:
        return self._spec((None, None, self.queries, self.keys), "bhij")

    def _spec(self, shape: tuple[int | None, ...], axes: str) -> pl.BlockSpec:
        def block(*program: Any) -> tuple[Any, ...]:
            b, i, j, h = self.index(*program)
            at = {"b": b, "i": i, "j": j, "h": h, "0": 0}
            return tuple(at[axis] for axis in axes)

        return pl.BlockSpec(shape, block)


def _run(
    kernel: partial[None],
    origin_3: jax.Array,
    *,
    inputs: Sequence[jax.Array],
    in_specs: Sequence[pl.BlockSpec],
    outputs: Sequence[jax.ShapeDtypeStruct],
    out_specs: Sequence[pl.BlockSpec],
    grid: tuple[int, ...],
) -> list[jax.Array]:
    """Call a kernel: compiled on CUDA GPUs, interpreted on CPUs, as decided at lowering."""

    def call(*arrays: jax.Array, interpret: bool) -> list[jax.Array]:
        return list(
            pl.pallas_call(
                kernel,
                grid=grid,
                in_specs=[pl.BlockSpec((3,), lambda *_: (0,)), *in_specs],
                out_specs=list(out_specs),
                out_shape=list(outputs),
                compiler_params=plgpu.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
                interpret=interpret,
                name=kernel.func.__name__,
            )(*arrays)
        )

    result: list[jax.Array] = jax.lax.platform_dependent(
        origin_3,
        *inputs,
        cuda=partial(call, interpret=False),
        cpu=partial(call, interpret=True),
    )
    return result

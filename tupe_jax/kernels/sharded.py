"""Fused attention on a mesh: every device computes its sequences and its heads.

The partitioner cannot see into a kernel, so `shard_map` splits the arrays. Devices that share the
batch have the same bias; `shard_map` sums their gradients of it.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from tupe_jax.distributed.sharding_rules import LOGICAL_AXES
from tupe_jax.kernels.factored import FactoredBias

Bias = jax.Array | FactoredBias | None
"""[H, S, S], or what it is made of."""


class Attend(Protocol):
    """An attention function that can work on a part of a batch and of the heads."""

    def __call__(
        self,
        q_BxSxHxd: jax.Array,
        k_BxSxHxd: jax.Array,
        v_BxSxHxd: jax.Array,
        bias: Bias,
        is_token_BxS: jax.Array,
        seed: jax.Array | None,
        *,
        first_sequence: jax.Array | int = 0,
        first_head: jax.Array | int = 0,
    ) -> jax.Array: ...


def on_mesh(
    attend: Attend,
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias: Bias,
    is_token_BxS: jax.Array,
    seed: jax.Array | None,
) -> jax.Array:
    """`attend` under the mesh in context; without one, just `attend`."""
    mesh = jax.sharding.get_abstract_mesh()
    free = {name: size for name, size in mesh.shape.items() if name in mesh.auto_axes and size > 1}
    B, _, H, _ = q_BxSxHxd.shape
    batch, heads = _axes("batch", B, free), _axes("heads", H, free)
    if not free:
        return attend(q_BxSxHxd, k_BxSxHxd, v_BxSxHxd, bias, is_token_BxS, seed)

    def part(
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        bias: Bias,
        is_token: jax.Array,
        seed: jax.Array | None,
    ) -> jax.Array:
        sequences, _, heads_here, _ = q.shape
        first_sequence, first_head = _index(batch) * sequences, _index(heads) * heads_here
        return attend(
            q, k, v, bias, is_token, seed, first_sequence=first_sequence, first_head=first_head
        )

    tokens = PartitionSpec(batch, None, heads, None)
    by_head: Any = PartitionSpec(heads)
    whole: Any = PartitionSpec()
    bias_specs: Any = by_head
    if isinstance(bias, FactoredBias):
        by_second_axis: Any = PartitionSpec(None, heads)
        bias_specs = FactoredBias(by_head, whole, by_second_axis, by_second_axis, by_head, by_head)
    out: jax.Array = jax.shard_map(
        part,
        in_specs=(tokens, tokens, tokens, bias_specs, PartitionSpec(batch, None), whole),
        out_specs=tokens,
        axis_names=set(mesh.auto_axes),  # the TPU compiler requires all axes for a kernel
        check_vma=False,  # Pallas kernels do not declare along which axes their outputs vary
    )(q_BxSxHxd, k_BxSxHxd, v_BxSxHxd, bias, is_token_BxS, seed)
    return out


def _axes(logical: str, size: int, free: dict[str, int]) -> tuple[str, ...]:
    """The mesh axes along which an axis of this size is split: as many as divide it."""
    chosen: tuple[str, ...] = ()
    for name in LOGICAL_AXES[logical]:
        if name in free and size % free[name] == 0:
            chosen, size = (*chosen, name), size // free[name]
    return chosen


def _index(axes: tuple[str, ...]) -> jax.Array | int:
    return jax.lax.axis_index(axes) if axes else jnp.int32(0)

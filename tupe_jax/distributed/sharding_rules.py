"""The sharding rules: one table from logical axis names to mesh axes.

Weights carry their axis names (`tupe_jax.model.layers.Weight`). The model names the axes of its
activations in a few places (`constrain`). No other code depends on the mesh.
"""

import math
from collections.abc import Mapping, Sequence

import jax
from jax.sharding import PartitionSpec

MESH_AXES = ("slice", "data", "fsdp", "tensor")
"""From the slowest network to the fastest; slices are connected by the data-centre network."""

LOGICAL_AXES: Mapping[str, tuple[str, ...]] = {
    # of activations
    "batch": ("slice", "data", "fsdp"),
    "replica": ("slice", "data"),  # instead of `batch` if features are sharded like weights
    "length": ("tensor",),  # between blocks, where `tensor` is free
    # of weights and of activations computed from them
    "embed": ("fsdp",),  # once in every large weight; not in activations
    "vocab": ("tensor",),
    "heads": ("tensor",),
    "mlp": ("tensor",),
}
"""Other logical axes (layers, positions, head_size, ...) are not sharded."""


def partition_spec(axes: Sequence[str | None]) -> PartitionSpec:
    """The partition of an array whose axes have these logical names."""
    return PartitionSpec(*(LOGICAL_AXES.get(axis or "") for axis in axes))


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
    """Constrain the sharding of an activation on the mesh in context (`jax.set_mesh`).

    Does nothing without a mesh. An axis that the mesh does not divide evenly is not sharded, so
    sequences may have any length. Mesh axes of an enclosing `shard_map` are not used.
    """
    mesh = jax.sharding.get_abstract_mesh()
    free = {name: size for name, size in mesh.shape.items() if name in mesh.auto_axes and size > 1}
    if not free:
        return x

    def parts(size: int, axis: str | None) -> tuple[str, ...] | None:
        names = tuple(name for name in LOGICAL_AXES.get(axis or "", ()) if name in free)
        return names if size % math.prod(free[name] for name in names) == 0 else None

    spec = PartitionSpec(*(parts(n, axis) for n, axis in zip(x.shape, axes, strict=True)))
    constrained: jax.Array = jax.lax.with_sharding_constraint(x, spec)
    return constrained

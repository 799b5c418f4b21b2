"""Where arrays go: one table from the names of their axes to the axes of the mesh.

Weights carry the names of their axes (`tupe_jax.model.layers.Weight`), the model names those of
its activations in a few places (`constrain`), and nobody else needs to know about the mesh.
"""

import math
from collections.abc import Mapping, Sequence

import jax
from jax.sharding import PartitionSpec

MESH_AXES = ("slice", "data", "fsdp", "tensor")
"""From the slowest network to the fastest: a slice is reached over the data-centre network."""

LOGICAL_AXES: Mapping[str, tuple[str, ...]] = {
    # of activations
    "batch": ("slice", "data", "fsdp"),
    "replica": ("slice", "data"),  # instead of `batch`, where features are sharded like weights
    "length": ("tensor",),  # between blocks, where no product needs `tensor` for something else
    # of weights and of the activations that arise from them
    "embed": ("fsdp",),  # every large weight has it once; activations keep their features whole
    "vocab": ("tensor",),
    "heads": ("tensor",),
    "mlp": ("tensor",),
}
"""Logical axes that are not here (layers, positions, head_size, ...) stay whole on each device."""


def partition_spec(axes: Sequence[str | None]) -> PartitionSpec:
    """The partition of an array whose axes have these logical names."""
    return PartitionSpec(*(LOGICAL_AXES.get(axis or "") for axis in axes))


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
    """Tell the compiler how an activation lies on the mesh in context (`jax.set_mesh`).

    Without a mesh it does nothing. An axis that the mesh does not divide stays whole: rows of any
    length may enter. Mesh axes that a `shard_map` around this has taken are left alone.
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

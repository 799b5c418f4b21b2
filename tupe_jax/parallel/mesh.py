"""The mesh, and one table that says where every logical axis of an array goes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tupe_jax.config import MeshConfig
from tupe_jax.errors import UserError

MESH_AXES = ("data", "fsdp", "tensor")

LOGICAL_AXES: Mapping[str, str | tuple[str, ...]] = {
    "batch": ("data", "fsdp"),
    "embed": "fsdp",  # every large weight has it once
    "vocab": "tensor",
    "heads": "tensor",
    "mlp": "tensor",
}
"""Logical axes that are not here (layers, positions, head_size, ...) stay whole on each device."""


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """All devices as a grid (data, fsdp, tensor); one size may be -1: whatever is left."""
    devices = jax.devices() if devices is None else devices
    sizes = [getattr(config, axis) for axis in MESH_AXES]
    wanted = ", ".join(f"mesh.{axis}={size}" for axis, size in zip(MESH_AXES, sizes, strict=True))
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise UserError(f"{wanted}: sizes are at least 1, and at most one of them may be -1")
    if -1 in sizes:
        sizes[sizes.index(-1)] = len(devices) // math.prod(size for size in sizes if size != -1)
    if math.prod(sizes) != len(devices):
        raise UserError(f"{wanted} does not use all of the {len(devices)} devices; set one to -1")
    return Mesh(np.asarray(devices).reshape(sizes), MESH_AXES)


def named_sharding(mesh: Mesh, axes: Sequence[str | None]) -> NamedSharding:
    """The sharding of an array whose axes have these logical names."""
    return NamedSharding(mesh, PartitionSpec(*(LOGICAL_AXES.get(axis or "") for axis in axes)))


def tree_shardings(mesh: Mesh, abstract: Any) -> Any:
    """A sharding for every array of a tree: by its axis names, or whole on each device.

    Optimizers keep moments in the very `nnx.Param`s of the weights, so their names come along.
    """

    def sharding(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, nnx.Variable):
            return named_sharding(mesh, ())
        axes = leaf.get_metadata("axes")
        chosen = named_sharding(mesh, axes)
        _check_divisible(jax.tree_util.keystr(path), leaf.shape, axes, chosen)
        return leaf.replace(chosen)

    return jax.tree_util.tree_map_with_path(
        sharding, abstract, is_leaf=lambda x: isinstance(x, nnx.Variable)
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    return named_sharding(mesh, ("batch", None))


def check_batch(batch_size: int, accumulate: int, mesh: Mesh) -> None:
    """Every device needs the same number of rows of every micro-batch."""
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    if batch_size // accumulate % shards:
        raise UserError(
            f"train.batch_size={batch_size} / train.accumulate={accumulate} is not divisible by "
            f"the {shards} devices that share a batch (mesh.data x mesh.fsdp)"
        )


def _check_divisible(
    name: str, shape: Sequence[int], axes: Sequence[str | None], sharding: NamedSharding
) -> None:
    for size, axis, mesh_axis in zip(shape, axes, sharding.spec, strict=True):
        parts = sharding.mesh.shape[mesh_axis] if isinstance(mesh_axis, str) else 1
        if size % parts:
            raise UserError(
                f"{name}: its axis {axis!r} of size {size} is not divisible by "
                f"mesh.{mesh_axis}={parts}"
            )

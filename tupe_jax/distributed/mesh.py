"""The mesh of devices, and the shardings of trees of arrays on it."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from tupe_jax.config.schema import MeshConfig
from tupe_jax.distributed.sharding_rules import LOGICAL_AXES, MESH_AXES, partition_spec
from tupe_jax.utils.errors import UserError

AnyMesh = Mesh | AbstractMesh
T = TypeVar("T")


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """All devices as a grid (slice, data, fsdp, tensor) that follows the physical topology."""
    devices = jax.devices() if devices is None else devices
    slices = _slices(config, devices)
    _, *sizes = mesh_shape(config, len(devices), slices=len(slices)).values()
    # An axis of the mesh may be a part of an axis of the torus; otherwise few sizes would work.
    grids = [
        mesh_utils.create_device_mesh(sizes, members, allow_split_physical_axes=True)
        for members in slices
    ]
    return Mesh(np.stack(grids), MESH_AXES)


def mesh_shape(config: MeshConfig, devices: int, *, slices: int) -> dict[str, int]:
    """The number of devices along each axis; one size within a slice may be -1: the rest."""
    names = MESH_AXES[1:]
    sizes = [getattr(config, axis) for axis in names]
    wanted = ", ".join(f"mesh.{axis}={size}" for axis, size in zip(names, sizes, strict=True))
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise UserError(f"{wanted}: sizes are at least 1, and at most one of them may be -1")
    if devices % slices:
        raise UserError(f"mesh.slice={slices} does not divide the {devices} devices")
    in_slice = devices // slices
    given = math.prod(size for size in sizes if size != -1)
    if -1 in sizes:
        sizes[sizes.index(-1)] = in_slice // given
    if math.prod(sizes) != in_slice:
        of = "devices" if slices == 1 else f"devices of each of {slices} slices"
        advice = "set one to -1" if in_slice % given == 0 else f"{in_slice} / {given} is no integer"
        raise UserError(f"{wanted} does not use all of the {in_slice} {of}; {advice}")
    return dict(zip(MESH_AXES, (slices, *sizes), strict=True))


def _slices(config: MeshConfig, devices: Sequence[Any]) -> list[list[Any]]:
    """The devices of each slice."""
    wanted, platform = config.slice, devices[0].platform
    if platform == "cpu" and wanted > 0:  # simulated slices; `mesh_shape` refuses unequal ones
        return [list(part) for part in np.array_split(np.asarray(devices), wanted)]
    by_index: dict[int, list[Any]] = {}
    for device in devices:
        by_index.setdefault(getattr(device, "slice_index", 0), []).append(device)
    reported = [by_index[index] for index in sorted(by_index)]
    if wanted == 1 and platform == "gpu":  # GPUs report one slice per NVLink domain
        return [list(devices)]
    if wanted not in (-1, len(reported)):
        raise UserError(
            f"mesh.slice={wanted}, but the number of slices of the {len(devices)} devices is "
            f"{len(reported)}; set mesh.slice={len(reported)}, or -1 to detect them"
        )
    if len({len(members) for members in reported}) > 1:
        raise UserError(
            "all slices must have the same number of devices, not "
            f"{', '.join(str(len(members)) for members in reported)}"
        )
    return reported


def named_sharding(mesh: AnyMesh, axes: Sequence[str | None]) -> NamedSharding:
    """The sharding of an array whose axes have these logical names."""
    return NamedSharding(mesh, partition_spec(axes))


def tree_shardings(mesh: AnyMesh, abstract: Any) -> Any:
    """A sharding for every array of a tree: by its axis names, or replicated.

    Optimizers keep moments in the `nnx.Param`s of the weights, which have axis names. An optimizer
    of some weights only keeps the `nnx.Param`s of the others empty.
    """
    _check_divisible(mesh, abstract)

    def sharding(leaf: Any) -> Any:
        if not isinstance(leaf, nnx.Variable):
            return named_sharding(mesh, ())
        return jax.tree.map(lambda _: named_sharding(mesh, leaf.get_metadata("axes")), leaf)

    return jax.tree.map(sharding, abstract, is_leaf=is_variable)


def batch_sharding(mesh: AnyMesh) -> NamedSharding:
    """The sharding of every feature of a batch, `[B, ...]`."""
    return named_sharding(mesh, ("batch",))


def check_batch(batch_size: int, accumulate: int, mesh: AnyMesh) -> None:
    """Every device needs the same number of sequences of every micro-batch."""
    axes = LOGICAL_AXES["batch"]
    shards = math.prod(mesh.shape[axis] for axis in axes)
    if batch_size // accumulate % shards:
        raise UserError(
            f"train.batch_size={batch_size} / train.accumulate={accumulate} is not divisible by "
            f"the {shards} devices that share a batch "
            f"({' x '.join(f'mesh.{axis}={mesh.shape[axis]}' for axis in axes)})"
        )


def _check_divisible(mesh: AnyMesh, abstract: Any) -> None:
    """Every weight must divide evenly; the error lists the sizes of the mesh that work."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(abstract, is_leaf=is_variable)
    common = dict.fromkeys(MESH_AXES, 0)
    misfit: tuple[str, str, int, str] | None = None
    for path, leaf in leaves:
        if not is_variable(leaf) or not jax.tree.leaves(leaf):
            continue
        for size, axis in zip(leaf.shape, leaf.get_metadata("axes"), strict=True):
            for mesh_axis in LOGICAL_AXES.get(axis or "", ()):
                common[mesh_axis] = math.gcd(common[mesh_axis], size)
                if size % mesh.shape[mesh_axis] and misfit is None:
                    misfit = jax.tree_util.keystr(path), axis, size, mesh_axis
    if misfit is not None:
        name, axis, size, mesh_axis = misfit
        possible = [n for n in range(1, common[mesh_axis] + 1) if common[mesh_axis] % n == 0]
        raise UserError(
            f"{name}: its axis {axis!r} of size {size} is not divisible by "
            f"mesh.{mesh_axis}={mesh.shape[mesh_axis]}; "
            f"this model allows mesh.{mesh_axis}={', '.join(map(str, possible))}"
        )


def is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)


def block_on_cpu(result: T) -> T:
    """Return `result`; on several CPU devices, block until it is computed.

    Accelerators run programs in the order in which they were launched. XLA's CPU client with
    several devices does not: two programs with collectives can each hold threads that the other
    needs, and deadlock.
    """
    if jax.device_count() > 1 and jax.default_backend() == "cpu":
        jax.block_until_ready(result)
    return result

"""The shardings of a training state on a mesh, and the bytes on each device."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding

from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import check_batch, is_variable, mesh_shape
from tupe_jax.distributed.sharding_rules import LOGICAL_AXES, MESH_AXES
from tupe_jax.training.train_state import StatePlan, plan_state
from tupe_jax.utils.text import aligned_table


@dataclass(frozen=True)
class Bytes:
    """The size of some arrays: in total, and on one device."""

    total: int
    per_device: int

    @classmethod
    def of(cls, abstract: Any, shardings: Any) -> "Bytes":
        pairs = list(zip(jax.tree.leaves(abstract), jax.tree.leaves(shardings), strict=True))
        return cls(
            total=sum(math.prod(x.shape) * x.dtype.itemsize for x, _ in pairs),
            per_device=sum(math.prod(s.shard_shape(x.shape)) * x.dtype.itemsize for x, s in pairs),
        )


@dataclass(frozen=True)
class Parameter:
    """A weight: names and sizes of its axes, and the mesh axes that shard each."""

    name: str
    axes: tuple[str | None, ...]
    shape: tuple[int, ...]
    partition: tuple[tuple[str, ...], ...]
    bytes: Bytes


@dataclass(frozen=True)
class Shardings:
    """A training state on a mesh."""

    mesh: dict[str, int]
    batch_size: int
    """Sequences of a micro-batch, over all devices."""
    parameters: tuple[Parameter, ...]
    totals: dict[str, Bytes]

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())

    @property
    def batch_per_device(self) -> int:
        return self.batch_size // math.prod(self.mesh[axis] for axis in LOGICAL_AXES["batch"])


def lay_out(config: Config, devices: int | None = None) -> Shardings:
    """The shardings of a config on this number of devices, which need not exist.

    By default their number is the product of the sizes of the mesh, with -1 counting as 1.
    """
    sizes = {axis: max(1, getattr(config.mesh, axis)) for axis in MESH_AXES}
    shape = mesh_shape(config.mesh, devices or math.prod(sizes.values()), slices=sizes["slice"])
    mesh = AbstractMesh(tuple(shape.values()), MESH_AXES)
    check_batch(config.train.batch_size, config.train.accumulate, mesh)
    plan = plan_state(config, mesh)
    parts = {
        "parameters": (plan.abstract.params, plan.shardings.params),
        "averaged parameters": (plan.abstract.ema, plan.shardings.ema),
        "optimizer state": (plan.abstract.opt_state, plan.shardings.opt_state),
        "in all": (plan.abstract, plan.shardings),
    }
    return Shardings(
        mesh=shape,
        batch_size=config.train.batch_size // config.train.accumulate,
        parameters=tuple(_parameters(plan, shape)),
        totals={name: Bytes.of(*trees) for name, trees in parts.items() if trees[0] is not None},
    )


def _parameters(plan: StatePlan, mesh: dict[str, int]) -> Iterable[Parameter]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(plan.abstract.params, is_leaf=is_variable)
    shardings: list[NamedSharding] = jax.tree.leaves(plan.shardings.params)
    for (path, leaf), sharding in zip(leaves, shardings, strict=True):
        yield Parameter(
            name=".".join(str(entry.key) for entry in path),
            axes=leaf.get_metadata("axes"),
            shape=leaf.shape,
            partition=tuple(_divided_by(entry, mesh) for entry in sharding.spec),
            bytes=Bytes.of(leaf, sharding),
        )


def _divided_by(entry: str | tuple[str, ...] | None, mesh: dict[str, int]) -> tuple[str, ...]:
    """The mesh axes of an entry of a partition, without those of size 1."""
    names = (entry,) if isinstance(entry, str) else entry or ()
    return tuple(name for name in names if mesh[name] > 1)


def as_text(shardings: Shardings) -> str:
    """An aligned table: one line per parameter, then the totals."""
    header = ("parameter", "axes", "shape", "divided by", "MiB", "per device")
    rows = [
        (
            p.name,
            " ".join(axis or "-" for axis in p.axes),
            " ".join(map(str, p.shape)),
            " ".join("+".join(names) or "-" for names in p.partition),
            *_mebibytes(p.bytes),
        )
        for p in shardings.parameters
    ]
    totals = [(name, "", "", "", *_mebibytes(size)) for name, size in shardings.totals.items()]
    mesh = " x ".join(f"{axis} {size}" for axis, size in shardings.mesh.items())
    lines = aligned_table([header, *rows, *totals], right=(4, 5))
    return "\n".join(
        [
            f"{shardings.devices} devices: {mesh}; {shardings.batch_size} sequences per "
            f"micro-batch, {shardings.batch_per_device} per device",
            "",
            *lines[: -len(totals)],
            "",
            *lines[-len(totals) :],
        ]
    )


def as_json(shardings: Shardings) -> dict[str, Any]:
    def sizes(size: Bytes) -> dict[str, int]:
        return {"bytes": size.total, "bytes_per_device": size.per_device}

    return {
        "devices": shardings.devices,
        "mesh": shardings.mesh,
        "rows_per_device": shardings.batch_per_device,
        "parameters": [
            {
                "name": p.name,
                "axes": p.axes,
                "shape": p.shape,
                "divided_by": p.partition,
                **sizes(p.bytes),
            }
            for p in shardings.parameters
        ],
        "totals": {name.replace(" ", "_"): sizes(size) for name, size in shardings.totals.items()},
    }


def _mebibytes(size: Bytes) -> tuple[str, str]:
    return f"{size.total / 2**20:,.3f}", f"{size.per_device / 2**20:,.3f}"

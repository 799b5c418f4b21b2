"""The size of the position bias of each head, written with every evaluation."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tupe_jax.config.schema import Config
from tupe_jax.model.measurement import bias_sizes
from tupe_jax.objectives.base import Objective
from tupe_jax.training.monitoring.metrics import Line
from tupe_jax.training.train_state import Params

PREFIX = "position_bias/"
LONGEST = 512
"""Positions that are measured of a longer sequence: the bias takes heads x positions^2 numbers."""


class PositionBiasSizes:
    """Measures the biases of a model in training; an encoding without a bias has no sizes."""

    def __init__(
        self, config: Config, graph: nnx.GraphDef[Any], objective: Objective, mesh: Mesh
    ) -> None:
        length = min(config.data.length, LONGEST)
        self._mesh = mesh

        def sizes_of(params: Params) -> dict[str, jax.Array]:
            exported = objective.to_export(nnx.merge(graph, params))
            return bias_sizes(exported.model.encoder, length)

        # Replicated, so that every process can read the sizes of heads that others hold.
        whole = NamedSharding(mesh, PartitionSpec())
        compiled_at_first_call = jax.jit(sizes_of, out_shardings=whole)
        self._lower = compiled_at_first_call.lower
        self._sizes_of: Callable[[Params], dict[str, jax.Array]] = compiled_at_first_call

    def compile(self, params: Params) -> None:
        """Compile for weights of these shapes. Without this, the first call compiles."""
        with jax.set_mesh(self._mesh):
            self._sizes_of = self._lower(params).compile()

    def __call__(self, params: Params) -> dict[str, float]:
        """Metrics such as `position_bias/relative/head_0`."""
        with jax.set_mesh(self._mesh):
            sizes = jax.device_get(self._sizes_of(params))
        return {
            f"{PREFIX}{part}/head_{head}": float(size)
            for part, sizes_H in sizes.items()
            for head, size in enumerate(sizes_H)
        }


def sizes_in(line: Line) -> dict[str, tuple[float | None, ...]]:
    """The sizes of the heads in a line of `metrics.jsonl`, by part of the encoding."""
    sizes: dict[str, list[float | None]] = {}
    for name, value in line.items():
        if name.startswith(PREFIX):
            part, _ = name.removeprefix(PREFIX).split("/")
            sizes.setdefault(part, []).append(value)
    return {part: tuple(heads) for part, heads in sizes.items()}

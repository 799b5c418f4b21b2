"""Validation: the same examples with the same masks in every run, so that losses are comparable.

Masks are drawn per batch, so they depend on `train.batch_size / train.accumulate`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import batch_sharding, block_on_cpu
from tupe_jax.objectives.base import Features, Objective, Term, metrics
from tupe_jax.training.dataset import HostFeatures, global_batch
from tupe_jax.training.train_state import Params, random_key

Sums = tuple[dict[str, Term], dict[str, jax.Array]]
"""The terms of an objective, and their weights."""
PREFIX = "valid_"


class Validation:
    """The metrics of an objective on fixed validation examples."""

    def __init__(
        self,
        config: Config,
        graph: nnx.GraphDef[Any],
        objective: Objective,
        examples: HostFeatures,
        mesh: Mesh,
    ):
        # As many examples at once as in a micro-batch of training, which fits by experience.
        size = config.train.batch_size // config.train.accumulate
        self._batches = list(_batches(examples, size, config.model.pad_id))
        self._mesh = mesh
        self._objective = objective

        def prepare(batch: Features, number: jax.Array) -> Any:
            # Not the run's seed, because runs with different seeds are compared.
            return objective.prepare(batch, random_key(0, "validation", number))

        def sums_of(params: Params, batch: Features, number: jax.Array) -> Sums:
            inputs = prepare(batch, number)
            terms = objective.terms(nnx.merge(graph, params), inputs, None)
            return terms, objective.weights(inputs)

        self._prepare: Callable[..., Any] = jax.jit(prepare)
        compiled_at_first_call = jax.jit(sums_of)
        self._lower = compiled_at_first_call.lower
        self._sums_of: Callable[..., Sums] = compiled_at_first_call
        self.is_compiled = False

    def compile(self, params: Params) -> None:
        """Compile for weights of these shapes. Without this, the first call compiles."""
        batch = global_batch(batch_sharding(self._mesh), self._batches[0], self._objective)
        with jax.set_mesh(self._mesh):
            self._sums_of = self._lower(params, batch, jnp.int32(0)).compile()
        self.is_compiled = True

    def __call__(
        self, params: Params, stop_requested: Callable[[], bool]
    ) -> dict[str, float] | None:
        """Return the validation metrics, or None if a stop was requested meanwhile."""
        totals: Any = None
        for number, examples in enumerate(self._batches):
            if stop_requested():
                return None
            batch = global_batch(batch_sharding(self._mesh), examples, self._objective)
            with jax.set_mesh(self._mesh):
                sums = block_on_cpu(self._sums_of(params, batch, jnp.int32(number)))
            totals = sums if totals is None else jax.tree.map(jnp.add, totals, sums)
        measured = metrics(self._objective, *totals)
        return {f"{PREFIX}{name}": float(value) for name, value in measured.items()}

    def inputs(self) -> Iterator[Any]:
        """The `Inputs` of each validation batch, in host memory."""
        for number, examples in enumerate(self._batches):
            batch = {name: examples[name] for name in self._objective.features}
            yield jax.device_get(self._prepare(batch, jnp.int32(number)))


def metrics_text(valid: Mapping[str, float]) -> str:
    """Return validation metrics in one line: "loss 2.464, accuracy 49.0%"."""
    return ", ".join(
        f"{name.removeprefix(PREFIX).replace('_', ' ')} {value_text(name, value)}"
        for name, value in valid.items()
    )


SHARES = ("accuracy", "precision", "recall", "replaced")


def value_text(name: str, value: float) -> str:
    return f"{value:.1%}" if name.endswith(SHARES) else f"{value:.3f}"


def _batches(examples: HostFeatures, size: int, pad_id: int) -> Iterator[HostFeatures]:
    """Batches of one size; the last is filled up with padding tokens and zeros."""
    count = len(next(iter(examples.values())))
    for start in range(0, count, size):
        stop = min(start + size, count)
        yield {
            name: np.pad(
                feature[start:stop],
                ((0, size - (stop - start)), *[(0, 0)] * (feature.ndim - 1)),
                constant_values=pad_id if name == "tokens" else 0,
            )
            for name, feature in examples.items()
        }

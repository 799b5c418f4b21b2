"""Everything that changes during training, as one tree of arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import AnyMesh, tree_shardings
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training.optim.optimizer import make_optimizer

Params = nnx.State[Any, Any]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """The trained module and its optimizer after `step` batches."""

    step: jax.Array
    """int32: batches consumed, whether or not they led to an update."""
    params: Params
    opt_state: optax.OptState
    ema: Params | None
    """An average of the weights, if `train.ema_decay` is set."""
    skipped: jax.Array
    """int32: batches without an update because loss or gradient was not finite."""
    skipped_in_a_row: jax.Array


def init_state(
    config: Config, module: nnx.Module, optimizer: optax.GradientTransformation
) -> TrainState:
    """The state at step 0."""
    params = nnx.state(module, nnx.Param)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=optimizer.init(params),
        ema=jax.tree.map(jnp.copy, params) if config.train.ema_decay else None,
        skipped=jnp.zeros((), jnp.int32),
        skipped_in_a_row=jnp.zeros((), jnp.int32),
    )


@dataclass(frozen=True)
class StatePlan:
    """The shape and sharding of the state, and how to make it: no array is ever built unsharded."""

    graph: nnx.GraphDef[Any]
    """The graph of the module that the objective trains."""
    abstract: TrainState
    shardings: TrainState
    create: Callable[[], TrainState]

    @property
    def abstract_sharded(self) -> TrainState:
        """Shapes with shardings, as a restore needs them."""

        def both(shape: jax.ShapeDtypeStruct, sharding: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

        state: TrainState = jax.tree.map(both, self.abstract, self.shardings)
        return state


def plan_state(config: Config, mesh: AnyMesh) -> StatePlan:
    """Lay out the state of a config, which does not depend on the learning rate.

    An abstract mesh is enough: shapes and shardings do not depend on the devices.
    """
    optimizer = make_optimizer(config.optimizer, optax.constant_schedule(0.0))
    objective = make_objective(config)

    def build() -> nnx.Module:
        return objective.build(nnx.Rngs(random_key(config.seed, "init", 0)))

    def init() -> TrainState:
        return init_state(config, build(), optimizer)

    graph = nnx.graphdef(nnx.eval_shape(build))
    abstract = jax.eval_shape(init)
    shardings = tree_shardings(mesh, abstract)
    create = jax.jit(init, out_shardings=shardings, compiler_options=_compiler_options())
    return StatePlan(graph, abstract, shardings, create)


def _compiler_options() -> dict[str, int] | None:
    """Options for the program that makes the initial state, which runs once.

    On CPUs, level 1 compiles it in a third of the time. It runs as fast and gives the same bits;
    at level 0, which JAX takes if it is asked for few optimizations, the bits differ.
    """
    if jax.default_backend() != "cpu" or jax.config.values["jax_disable_most_optimizations"]:
        return None
    return {"xla_backend_optimization_level": 1}


Stream = Literal["init", "masking", "dropout", "validation", "order"]

_NUMBER_OF_STREAM: Mapping[Stream, int] = {
    "init": 0,
    "masking": 1,
    "dropout": 2,
    "validation": 3,
    "order": 4,
}
"""Resumed runs depend on these numbers: add streams, but never change the number of one."""


def random_key(seed: Any, stream: Stream, step: Any) -> jax.Array:
    """Randomness is a function of (seed, stream, step), so checkpoints hold no random state."""
    key = jax.random.fold_in(jax.random.key(seed), _NUMBER_OF_STREAM[stream])
    return jax.random.fold_in(key, step)

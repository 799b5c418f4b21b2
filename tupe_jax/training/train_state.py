"""Everything that changes during training, as one tree of arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import AnyMesh, tree_shardings
from tupe_jax.model.heads import MaskedLM
from tupe_jax.training.optim.optimizer import make_optimizer

Params = nnx.State[Any, Any]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """The model and its optimizer after `step` batches."""

    step: jax.Array
    """int32: batches consumed so far, whether or not they led to an update."""
    params: Params
    opt_state: optax.OptState
    ema: Params | None
    """An average of the weights, if `train.ema_decay` asks for it."""
    skipped: jax.Array
    """int32: batches without an update because loss or gradient was not finite."""
    skipped_in_a_row: jax.Array


def init_state(config: Config, optimizer: optax.GradientTransformation) -> TrainState:
    """The state at step 0: a function of the seed."""
    model = MaskedLM(config.model, rngs=nnx.Rngs(random_key(config.seed, "init", 0)))
    params = nnx.state(model, nnx.Param)
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

    graph: nnx.GraphDef[MaskedLM]
    abstract: TrainState
    shardings: TrainState
    create: Callable[[], TrainState]

    @property
    def abstract_sharded(self) -> TrainState:
        """Shapes and shardings together, as a restore wants them."""

        def both(shape: jax.ShapeDtypeStruct, sharding: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

        state: TrainState = jax.tree.map(both, self.abstract, self.shardings)
        return state


def plan_state(config: Config, mesh: AnyMesh) -> StatePlan:
    """Lay out the state of a config; what the learning rate will be does not matter to it.

    A mesh without devices is enough for shapes and shardings, which do not depend on them.
    """
    optimizer = make_optimizer(config.optimizer, optax.constant_schedule(0.0))
    graph = nnx.graphdef(nnx.eval_shape(lambda: MaskedLM(config.model, rngs=nnx.Rngs(0))))

    def init() -> TrainState:
        return init_state(config, optimizer)

    abstract = jax.eval_shape(init)
    shardings = tree_shardings(mesh, abstract)
    return StatePlan(graph, abstract, shardings, jax.jit(init, out_shardings=shardings))


_STREAMS = ("init", "masking", "dropout", "validation", "order")


def random_key(seed: Any, stream: str, step: Any) -> jax.Array:
    """Randomness is a function of (seed, stream, step), so that nothing random needs saving."""
    return jax.random.fold_in(
        jax.random.fold_in(jax.random.key(seed), _STREAMS.index(stream)), step
    )

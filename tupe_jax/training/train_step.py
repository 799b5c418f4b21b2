"""One training step: prepare, differentiate, update unless not finite; and its compilation."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh

from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import batch_sharding, check_batch
from tupe_jax.model.attention_backend import platform_here
from tupe_jax.objectives.base import Features, Objective, Term, metrics, total_loss
from tupe_jax.tokenizers.sentencepiece import PAD_ID, SEP_ID
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.optim.schedule import scheduled_learning_rate
from tupe_jax.training.train_state import Params, StatePlan, TrainState, random_key
from tupe_jax.utils.errors import UserError

State = TypeVar("State")
Terms = dict[str, Term]
Metrics = dict[str, jax.Array]

EMA_WARMUP = 80
"""Measured on the quick start: of 10, 20, 40, 80 and 160, 10 lags behind the plain weights while
the loss falls fast, and 160 gains less from averaging."""


def make_train_step(
    config: Config,
    graph: nnx.GraphDef[Any],
    objective: Objective,
    optimizer: optax.GradientTransformation,
    learning_rate: optax.Schedule,
) -> Callable[[TrainState, Features], tuple[TrainState, Metrics]]:
    """The function (state, batch) -> (state, metrics)."""

    def train_step(state: TrainState, batch: Features) -> tuple[TrainState, Metrics]:
        inputs = objective.prepare(batch, random_key(config.seed, "masking", state.step))
        key = random_key(config.seed, "dropout", state.step)
        weights = objective.weights(inputs)  # of the whole batch, also for each micro-batch

        def loss(params: Params, inputs: Any, key: jax.Array) -> tuple[jax.Array, Terms]:
            terms = objective.terms(nnx.merge(graph, params), inputs, key)
            return total_loss(objective, terms, weights), terms

        gradient, terms = accumulate(
            jax.grad(loss, has_aux=True), state.params, inputs, key, config.train.accumulate
        )
        measured = metrics(objective, terms, weights)
        gradient_norm = optax.tree.norm(gradient)
        finite = jnp.isfinite(measured["loss"]) & jnp.isfinite(gradient_norm)
        updates_before = state.step - state.skipped

        def update(old: Any) -> Any:
            params, opt_state, average = old
            updates, opt_state = optimizer.update(gradient, opt_state, params)
            params = optax.apply_updates(params, updates)
            average = averaged(config.train.ema_decay, average, params, updates_before)
            return params, opt_state, average

        old = state.params, state.opt_state, state.ema
        params, opt_state, ema = update_if(finite, update, old)
        skipped = 1 - finite.astype(jnp.int32)
        new_state = TrainState(
            step=state.step + 1,
            params=params,
            opt_state=opt_state,
            ema=ema,
            skipped=state.skipped + skipped,
            skipped_in_a_row=(state.skipped_in_a_row + 1) * skipped,
        )
        return new_state, {
            **measured,
            "grad_norm": gradient_norm,
            "learning_rate": jnp.asarray(learning_rate(updates_before)),
            "skipped": new_state.skipped,
            "skipped_in_a_row": new_state.skipped_in_a_row,
        }

    return train_step


def update_if(condition: jax.Array, update: Callable[[State], State], old: State) -> State:
    """`update(old)` if the condition is true, otherwise `old`."""
    if platform_here() == "cpu" and jax.sharding.get_abstract_mesh().size <= 1:
        # In a branch XLA updates in place. To select each new array or its old one, XLA first
        # copies the moments on CPUs, and reads old arrays twice.
        in_place: State = jax.lax.cond(condition, update, lambda old: old, old)
        return in_place
    selected: State = jax.tree.map(lambda n, o: jnp.where(condition, n, o), update(old), old)
    return selected


def accumulate(
    gradient_of: Callable[..., tuple[Any, Terms]],
    params: Params,
    inputs: Any,
    key: jax.Array,
    count: int,
) -> tuple[Any, Terms]:
    """The sums of the gradients and of the terms of `count` micro-batches, one after the other."""
    if count == 1:
        return gradient_of(params, inputs, key)

    def spread(x: jax.Array) -> jax.Array:
        # Example i goes to micro-batch i % count, so that every device keeps its examples.
        return x.reshape(x.shape[0] // count, count, *x.shape[1:]).swapaxes(0, 1)

    def add(total: Any, micro_batch: tuple[jax.Array, Any]) -> tuple[Any, None]:
        index, inputs = micro_batch
        return jax.tree.map(
            jnp.add, total, gradient_of(params, inputs, jax.random.fold_in(key, index))
        ), None

    micro_batches = (jnp.arange(count), jax.tree.map(spread, inputs))
    first = jax.tree.map(lambda x: x[0], micro_batches)
    zeros = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient_of, params, first[1], key)
    )
    total, _ = jax.lax.scan(add, zeros, micro_batches)
    result: tuple[Any, Terms] = total
    return result


def averaged(
    decay: float, average: Params | None, params: Params, updates_before: jax.Array
) -> Params | None:
    """Move the average towards the params: d * average + (1 - d) * params.

    d rises with the number of updates t, min(decay, (1 + t) / (EMA_WARMUP + t)): the average spans
    about the last t / EMA_WARMUP updates until `decay` limits it. A constant decay would keep
    decay^t of the random initial weights, for thousands of updates.
    """
    if average is None:
        return None
    d = jnp.minimum(decay, (1 + updates_before) / (EMA_WARMUP + updates_before))
    moved: Params = jax.tree.map(lambda a, p: d * a + (1 - d) * p, average, params)
    return moved


def lower_train_step(
    config: Config, plan: StatePlan, mesh: Mesh, objective: Objective, schedule: optax.Schedule
) -> jax.stages.Lowered:
    """The step (state, batch) -> (state, metrics), ready to compile; the state is donated."""
    optimizer = make_optimizer(config.optimizer, schedule)
    step = make_train_step(config, plan.graph, objective, optimizer, schedule)
    with jax.set_mesh(mesh):
        return jax.jit(step, donate_argnums=0, out_shardings=(plan.shardings, None)).lower(
            plan.abstract_sharded, batch_shapes(config, mesh, objective)
        )


def batch_shapes(
    config: Config, mesh: Mesh, objective: Objective
) -> dict[str, jax.ShapeDtypeStruct]:
    """The features of a global batch."""
    return {
        name: jax.ShapeDtypeStruct(
            (config.train.batch_size, *feature.shape), feature.dtype, sharding=batch_sharding(mesh)
        )
        for name, feature in objective.features.items()
    }


def check_settings(config: Config, mesh: Mesh) -> None:
    """Raise if settings of a config contradict each other, before any work is done."""
    check_batch(config.train.batch_size, config.train.accumulate, mesh)
    longest, length = config.model.position.max_length, config.data.length
    if length > longest:
        raise UserError(
            f"data.length={length} is more than position.max_length={longest}; "
            f"set --config.position.max_length={length}"
        )
    for name, fixed in (("pad_id", PAD_ID), ("sep_id", SEP_ID)):
        if getattr(config.model, name) != fixed:
            raise UserError(
                f"model.{name}={getattr(config.model, name)} is for imported models; "
                f"pre-training needs model.{name}={fixed}"
            )
    schedule_of(config, sequences_per_epoch=1)


def schedule_of(config: Config, sequences_per_epoch: int | None) -> optax.Schedule:
    """The learning rate of the whole run."""
    return scheduled_learning_rate(
        config.optimizer,
        total_steps=config.train.steps,
        batch_size=config.train.batch_size,
        sequences_per_epoch=sequences_per_epoch,
    )

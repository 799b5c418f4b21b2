"""One training step: mask, differentiate, update unless not finite; and its compilation."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import batch_sharding, check_batch
from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives.masked_lm import Sums, masked_lm_sums
from tupe_jax.objectives.masking import MaskedBatch, mask_tokens
from tupe_jax.tokenizers.sentencepiece import PAD_ID, SEP_ID, SPECIAL
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.optim.schedule import scheduled_learning_rate
from tupe_jax.training.train_state import Params, StatePlan, TrainState, random_key
from tupe_jax.utils.errors import UserError

Mask = Callable[[jax.Array, jax.Array], MaskedBatch]
"""(tokens [B, S], key) -> rows with some tokens hidden."""
Metrics = dict[str, jax.Array]

EMA_WARMUP = 80
"""Measured on the quick start: of 10, 20, 40, 80 and 160, 10 lags behind the plain weights while
the loss falls fast, and 160 gains less from averaging."""


def make_train_step(
    config: Config,
    graph: nnx.GraphDef[MaskedLM],
    mask: Mask,
    optimizer: optax.GradientTransformation,
    learning_rate: optax.Schedule,
) -> Callable[[TrainState, jax.Array], tuple[TrainState, Metrics]]:
    """The function (state, tokens [B, S]) -> (state, metrics)."""

    def train_step(state: TrainState, tokens_BxS: jax.Array) -> tuple[TrainState, Metrics]:
        masked = mask(tokens_BxS, random_key(config.seed, "masking", state.step))
        key = random_key(config.seed, "dropout", state.step)
        total = masked.weights_BxM.sum()

        def loss(params: Params, rows: MaskedBatch, key: jax.Array) -> tuple[jax.Array, Sums]:
            sums = masked_lm_sums(nnx.merge(graph, params), rows, key)
            return sums.loss / total, sums

        gradient, sums = accumulate(
            jax.grad(loss, has_aux=True), state.params, masked, key, config.train.accumulate
        )
        gradient_norm = optax.tree.norm(gradient)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        finite = jnp.isfinite(sums.loss) & jnp.isfinite(gradient_norm)

        def if_finite(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)

        updates_before = state.step - state.skipped
        average = averaged(config.train.ema_decay, state.ema, params, updates_before)
        skipped = 1 - finite.astype(jnp.int32)
        new_state = TrainState(
            step=state.step + 1,
            params=if_finite(params, state.params),
            opt_state=if_finite(opt_state, state.opt_state),
            ema=if_finite(average, state.ema),
            skipped=state.skipped + skipped,
            skipped_in_a_row=(state.skipped_in_a_row + 1) * skipped,
        )
        return new_state, {
            "loss": sums.loss / total,
            "accuracy": sums.correct / total,
            "grad_norm": gradient_norm,
            "learning_rate": jnp.asarray(learning_rate(updates_before)),
            "skipped": new_state.skipped,
            "skipped_in_a_row": new_state.skipped_in_a_row,
        }

    return train_step


def accumulate(
    gradient_of: Callable[..., tuple[Any, Sums]],
    params: Params,
    rows: MaskedBatch,
    key: jax.Array,
    count: int,
) -> tuple[Any, Sums]:
    """The sum of the gradients, and of their sums, of `count` micro-batches one after the other."""
    if count == 1:
        return gradient_of(params, rows, key)

    def spread(x: jax.Array) -> jax.Array:
        # Row i goes to micro-batch i % count: each device keeps its rows, whatever its share.
        return x.reshape(x.shape[0] // count, count, *x.shape[1:]).swapaxes(0, 1)

    def add(total: Any, micro_batch: tuple[jax.Array, MaskedBatch]) -> tuple[Any, None]:
        index, rows = micro_batch
        return jax.tree.map(
            jnp.add, total, gradient_of(params, rows, jax.random.fold_in(key, index))
        ), None

    micro_batches = (jnp.arange(count), jax.tree.map(spread, rows))
    first = jax.tree.map(lambda x: x[0], micro_batches)
    zeros = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient_of, params, first[1], key)
    )
    total, _ = jax.lax.scan(add, zeros, micro_batches)
    result: tuple[Any, Sums] = total
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
    config: Config, plan: StatePlan, mesh: Mesh, mask: Mask, schedule: optax.Schedule
) -> jax.stages.Lowered:
    """The step (state, tokens) -> (state, metrics), ready to be compiled; the state is given up."""
    optimizer = make_optimizer(config.optimizer, schedule)
    step = make_train_step(config, plan.graph, mask, optimizer, schedule)
    with jax.set_mesh(mesh):
        return jax.jit(step, donate_argnums=0, out_shardings=(plan.shardings, None)).lower(
            plan.abstract_sharded, tokens_shape(config, mesh)
        )


def tokens_shape(config: Config, mesh: Mesh) -> jax.ShapeDtypeStruct:
    """Of a global batch."""
    shape = (config.train.batch_size, config.data.length)
    return jax.ShapeDtypeStruct(shape, np.int32, sharding=batch_sharding(mesh))


def masking(config: Config, starts_word_V: Sequence[bool]) -> Mask:
    """How the config hides tokens; `starts_word_V` tells which pieces begin a word."""
    by_word = config.objective.mask_unit == "word"
    return partial(
        mask_tokens,
        objective=config.objective,
        special=SPECIAL,
        vocab_size=config.model.vocab_size,
        starts_word_V=jnp.array(starts_word_V) if by_word else None,
    )


def check_settings(config: Config, mesh: Mesh) -> None:
    """Refuse, before any work, what the sections of a config contradict each other in."""
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
                f"model.{name}={getattr(config.model, name)} is for imported models; in rows of "
                f"pre-training it is {fixed}"
            )
    schedule_of(config, rows_per_epoch=1)


def schedule_of(config: Config, rows_per_epoch: int | None) -> optax.Schedule:
    """The learning rate of the whole run."""
    return scheduled_learning_rate(
        config.optimizer,
        total_steps=config.train.steps,
        batch_size=config.train.batch_size,
        rows_per_epoch=rows_per_epoch,
    )

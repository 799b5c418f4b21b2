"""One training step as a pure function of arrays: mask, differentiate, update unless not finite."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tupe_jax.config.schema import Config
from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives.masked_lm import Sums, masked_lm_sums
from tupe_jax.objectives.masking import MaskedBatch
from tupe_jax.training.train_state import Params, TrainState, random_key

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

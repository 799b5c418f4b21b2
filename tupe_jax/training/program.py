"""The train step as a program to compile: for the devices of a run, or for those of a target."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import batch_sharding, check_batch
from tupe_jax.objectives.masking import mask_tokens
from tupe_jax.tokenizers.sentencepiece import PAD_ID, SEP_ID, SPECIAL
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.optim.schedule import scheduled_learning_rate
from tupe_jax.training.train_state import StatePlan
from tupe_jax.training.train_step import Mask, make_train_step
from tupe_jax.utils.errors import UserError


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

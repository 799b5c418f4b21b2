"""The learning rate of every update."""

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.utils.errors import UserError


def scheduled_learning_rate(
    config: OptimizerConfig, *, total_steps: int, batch_size: int, sequences_per_epoch: int | None
) -> optax.Schedule:
    """`learning_rate` with the durations of the config, converted to steps."""

    def steps(name: str) -> int:
        return in_steps(
            getattr(config, name),
            f"optimizer.{name}",
            total_steps=total_steps,
            batch_size=batch_size,
            sequences_per_epoch=sequences_per_epoch,
        )

    return learning_rate(
        config,
        total_steps=total_steps,
        warmup_steps=steps("warmup"),
        decay_steps=steps("decay"),
    )


def learning_rate(
    config: OptimizerConfig, *, total_steps: int, warmup_steps: int, decay_steps: int
) -> optax.Schedule:
    """The learning rate as a function of the number of earlier updates.

    Warm-up is linear: peak / warmup_steps at the first update, the peak at update `warmup_steps`.
    Then `config.schedule` decides:

    linear, cosine   falls to final_fraction * peak, reached at the last update
    wsd              stays at the peak, then falls linearly to that value in `decay_steps`
    constant         stays at the peak

    Where warm-up and decay overlap, the smaller value counts. A warm-up that is longer than the run
    is cut off by its end. With `config.warmup_from_zero` the schedule is one update late: 0 at the
    first update, the peak right after the warm-up, and the final value is not quite reached.
    """
    decay_steps = decay_steps if config.schedule == "wsd" else total_steps - warmup_steps
    decay_start = total_steps - decay_steps
    fall = _FALLS[config.schedule]

    def schedule(updates_before: ArrayLike) -> jax.Array:
        update = jnp.asarray(updates_before) + (0 if config.warmup_from_zero else 1)
        risen = jnp.minimum(update / max(warmup_steps, 1), 1)
        progress = jnp.clip((update - decay_start) / max(decay_steps, 1), 0, 1)
        floor = config.final_fraction
        fallen = floor + (1 - floor) * fall(progress)
        return config.peak_learning_rate * jnp.minimum(risen, fallen)

    return schedule


_FALLS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda progress: 1 - progress,
    "cosine": lambda progress: (1 + jnp.cos(jnp.pi * progress)) / 2,
    "wsd": lambda progress: 1 - progress,
    "constant": jnp.ones_like,
}
"""The decay from 1 to 0, as a function of its progress."""

_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*(%|epochs?|examples?|steps?)?")


def in_steps(
    duration: str,
    setting: str,
    *,
    total_steps: int,
    batch_size: int,
    sequences_per_epoch: int | None,
) -> int:
    """The number of steps in "500", "500 steps", "10%", "2 epochs" or "5000 examples"."""
    match = _PATTERN.fullmatch(duration.strip())
    if not match:
        raise UserError(
            f"{setting}={duration!r} is not a duration; write '500', '10%', '2 epochs' or "
            "'5000 examples'"
        )
    amount, unit = float(match[1]), (match[2] or "steps").rstrip("s")
    if unit == "%":
        return round(amount / 100 * total_steps)
    if unit == "example":
        return round(amount / batch_size)
    if unit == "epoch":
        if sequences_per_epoch is None:
            raise UserError(
                f"{setting}={duration!r}: this reader does not know how long an epoch is"
            )
        return round(amount * sequences_per_epoch / batch_size)
    if amount != int(amount):
        raise UserError(f"{setting}={duration!r}: steps are whole numbers")
    return int(amount)

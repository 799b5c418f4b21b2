"""Durations as people write them: steps, a share of the run, epochs, or examples."""

import re

from tupe_jax.utils.errors import UserError

_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*(%|epochs?|examples?|steps?)?")


def in_steps(
    duration: str, setting: str, *, total_steps: int, batch_size: int, rows_per_epoch: int | None
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
        if rows_per_epoch is None:
            raise UserError(
                f"{setting}={duration!r}: this reader does not know how long an epoch is"
            )
        return round(amount * rows_per_epoch / batch_size)
    if amount != int(amount):
        raise UserError(f"{setting}={duration!r}: steps are whole numbers")
    return int(amount)

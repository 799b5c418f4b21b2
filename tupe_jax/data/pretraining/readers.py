"""What training asks of its data: the next batch, where we are, and to go back there.

A reader is a deterministic, endless stream of rows cut into global batches. Epochs follow each
other without a gap: where an epoch's rows do not fill the last batch, the next epoch's rows do, so
within an epoch no row is lost or repeated. Each process receives its share of every global batch;
the global batches do not depend on how many processes there are, and neither does the state, which
any process may save for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tupe_jax.utils.errors import UserError

Batch = dict[str, NDArray[np.int32]]
State = dict[str, Any]


class Reader(Protocol):
    """A stream of batches that can be left and taken up again at any step."""

    def next(self) -> Batch:
        """Return this process's rows of the next global batch: `tokens` `[rows, length]`.

        `tupe_jax.training.dataset` says which those are, and makes the global array of them.
        """

    def state(self) -> State:
        """Return the position after the batches taken so far: a few numbers and names for JSON."""

    def restore(self, state: State) -> None:
        """Go to a saved position, which must come from the same stream."""


@dataclass(frozen=True)
class Share:
    """Which rows of a global batch one process reads: some of its equal, contiguous parts.

    They need not lie together, and processes whose devices hold the same rows read the same parts.
    """

    held: tuple[int, ...] = (0,)
    """Ascending."""
    parts: int = 1

    def __post_init__(self) -> None:
        if not self.held or list(self.held) != sorted(set(self.held)):
            raise UserError(f"parts {self.held} of a batch: must be ascending, and one at least")
        for part in (self.held[0], self.held[-1]):
            if not 0 <= part < self.parts:
                raise UserError(f"no part {part} among {self.parts} parts of a batch")

    def rows(self, batch_size: int) -> list[int]:
        """Return which rows of a global batch they are, counted from its first, in order."""
        if batch_size < 1 or batch_size % self.parts:
            raise UserError(
                f"a global batch of {batch_size} rows cannot be split evenly into "
                f"{self.parts} parts; choose a multiple of {self.parts}"
            )
        size = batch_size // self.parts
        return [row for part in self.held for row in range(part * size, (part + 1) * size)]


def spread_seed(seed: int, *more: int) -> int:
    """Return 31 well-mixed bits; sums such as `seed + epoch` would repeat a neighbour's epochs."""
    return int(np.random.SeedSequence([seed, *more]).generate_state(1)[0]) >> 1


def check_same_stream(saved: State, stream: Mapping[str, Any]) -> None:
    """Fail unless a saved state was made by the stream that these values describe."""
    for name, here in stream.items():
        there = saved.get(name)
        if there != here:
            raise UserError(
                f"the saved data position has {name} {there!r}, but this run has {here!r}; "
                "resume with the same data settings, or start a new run"
            )

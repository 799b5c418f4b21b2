"""Heads classified into the five kinds that Ke et al. (2021) find in TUPE's positional matrices.

The paper assigns kinds by inspection. The rule here, in this order, for position-only attention:

    previous, next   `direction` is at most -1/2, or at least 1/2: three quarters or more of the
                     weight off the diagonal are on one side
    global           `reach` is at least 0.8: about as far as uniform attention
    local            `reach` is at most 0.25
    broad            otherwise

`reach` is the mean distance |i-j| of the weight, relative to uniform attention. A band as wide as a
tenth of the sequence has the same kind at every length, but a window of ten tokens is global in a
short sequence and local in a long one. Other patterns are not detected: a head that attends to
every second position is global.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tupe_jax.lab.metrics import direction

HeadKind = Literal["global", "local", "broad", "previous", "next"]
KINDS: tuple[HeadKind, ...] = ("global", "local", "broad", "previous", "next")

ONE_SIDED = 0.5
FAR, NEAR = 0.8, 0.25


def reach(matrix: ArrayLike) -> float:
    """Mean distance of the weight, relative to uniform attention of the same length."""
    m_NxN: NDArray[np.float64] = np.asarray(matrix, np.float64)
    position_N = np.arange(len(m_NxN))
    distance_NxN = abs(position_N[:, None] - position_N)
    return float((m_NxN * distance_NxN).sum(-1).mean() / distance_NxN.mean())


def kind_of(matrix: ArrayLike) -> HeadKind:
    """The kind of one head's matrix, rows summing to 1."""
    side = direction(matrix)
    if abs(side) >= ONE_SIDED:
        return "previous" if side < 0 else "next"
    distance = reach(matrix)
    if distance >= FAR:
        return "global"
    return "local" if distance <= NEAR else "broad"


def kinds_of(weights_LxHxNxN: NDArray[np.float32]) -> list[list[HeadKind]]:
    """The kind of every head, by layer."""
    return [[kind_of(head) for head in layer] for layer in weights_LxHxNxN]


def count_kinds(kinds: Sequence[Sequence[HeadKind]]) -> dict[HeadKind, int]:
    """The number of heads of each kind."""
    return {kind: sum(layer.count(kind) for layer in kinds) for kind in KINDS}

"""95 % confidence intervals: of proportions, of paired differences of proportions, and by the
bootstrap for all other statistics.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tupe_jax.utils.errors import UserError

_Z = 1.959964  # of the normal distribution: 2.5 % lie above it
_RESAMPLES = 5000


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % confidence interval."""

    estimate: float
    low: float
    high: float
    kind: Literal["wilson", "bonett-price", "bootstrap"]

    def __str__(self) -> str:
        return f"{self.estimate:.3f} ({self.low:.3f} to {self.high:.3f})"


def wilson(hits_N: ArrayLike) -> Interval:
    """Wilson's interval of the proportion of hits; a hit is 1, a miss 0, a tie 1/2.

    Unlike the bootstrap it has a positive width if all are hits. Ties make it slightly too wide.
    """
    hits: NDArray[np.float64] = _examples(hits_N)
    n, share = len(hits), float(hits.mean())
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    # Rounding must not put a proportion of 0 or 1 outside its own interval.
    low, high = min(share, centre - half), max(share, centre + half)
    return Interval(share, float(low), float(high), "wilson")


def paired_difference(before_N: ArrayLike, after_N: ArrayLike) -> Interval:
    """The proportion of hits after a change minus that before, for the same examples.

    By Bonett and Price (2012), who add one lost and one gained example. Unlike the bootstrap it has
    a positive width if no example changes.
    """
    before, after = _examples(before_N), _examples(after_N)
    n, lost, gained = len(before), int((after < before).sum()), int((after > before).sum())
    difference = (gained - lost) / n
    centre, changed = (gained - lost) / (n + 2), (gained + lost + 2) / (n + 2)
    half = _Z * np.sqrt((changed - centre**2) / (n + 2))
    low = max(-1.0, min(difference, float(centre - half)))
    high = min(1.0, max(difference, float(centre + half)))
    return Interval(difference, low, high, "bonett-price")


def bootstrap(
    values_N: ArrayLike,
    of_means: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda means: means[..., 0],
    *,
    seed: int = 0,
) -> Interval:
    """The percentile bootstrap of a function of means over examples, by default the mean itself.

    `values_N` is [N], or [N, K] if the function takes K means, which are resampled together, as
    paired values require. The interval of equal values has no width.
    """
    values = _examples(values_N)
    values_NxK = values.reshape(len(values), -1)
    # Drawing with replacement gives multinomial counts; equal examples can share a count.
    distinct_MxK, counts_M = np.unique(values_NxK, axis=0, return_counts=True)
    n = len(values_NxK)
    drawn_RxM = np.random.default_rng(seed).multinomial(n, counts_M / n, size=_RESAMPLES)
    resampled_R = of_means(drawn_RxM @ distinct_MxK / n)
    low, high = np.percentile(resampled_R, [2.5, 97.5])
    estimate = of_means(values_NxK.mean(0))
    return Interval(float(estimate), float(low), float(high), "bootstrap")


def _examples(values: ArrayLike) -> NDArray[np.float64]:
    array: NDArray[np.float64] = np.asarray(values, np.float64)
    if not len(array):
        raise UserError("there are no examples to measure")
    return array

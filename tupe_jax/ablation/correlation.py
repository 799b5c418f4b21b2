"""Spearman's rank correlation between two quantities of the variants of a study.

The sampling unit is a variant, not a run. Runs of one variant are nearly copies of one another (the
locality of a fixed encoding does not depend on the seed at all), so resampling runs would
underestimate the uncertainty. The 95 % interval is a percentile bootstrap that resamples variants,
each with all its runs.

With few variants the interval is wide. Where it would mislead, it is left out:

    fewer than 3 variants, or one side all equal    no correlation
    fewer than 5 variants                           no interval: too few distinct resamples
    perfect order                                   no interval: every resample is perfect, too
    resamples of fewer than 3 different variants    dropped: two points always lie on a line

`by_chance` is the share of all pairings of the variants' means whose correlation is at least as
strong, of either sign: 1 in 360 for six variants in perfect order. From eight variants on it is
estimated from 10,000 random pairings and the observed one.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

FEWEST, FEWEST_FOR_INTERVAL = 3, 5
_RESAMPLES = 2000
_PAIRINGS = 10_000  # random ones; up to seven variants have fewer, and all are used


@dataclass(frozen=True)
class RankCorrelation:
    """The correlation over the means of variants, and over all runs."""

    variants: int
    of_means: float | None
    """None: not defined."""
    interval: tuple[float, float] | None
    by_chance: float | None
    """Share of pairings of the means with at least as strong a correlation, of either sign."""
    runs: int
    of_runs: float | None
    runs_interval: tuple[float, float] | None


def rank_correlation(x: ArrayLike, y: ArrayLike, variants: Sequence[str]) -> RankCorrelation:
    """One x, y and variant for each run; equal values share their ranks."""
    x_N, y_N = np.asarray(x, np.float64), np.asarray(y, np.float64)
    names, variant_N = np.unique(np.asarray(variants), return_inverse=True)
    member_VxN = variant_N == np.arange(len(names))[:, None]
    x_V, y_V = (np.array([v_N[of_N].mean() for of_N in member_VxN]) for v_N in (x_N, y_N))
    of_means = _spearman(x_V, y_V, len(names))
    of_runs = _spearman(x_N, y_N, len(names))
    return RankCorrelation(
        variants=len(names),
        of_means=of_means,
        interval=_interval(of_means, x_V, y_V, np.eye(len(names))),
        by_chance=None if of_means is None else _by_chance(x_V, y_V),
        runs=len(x_N),
        of_runs=of_runs,
        runs_interval=_interval(of_runs, x_N, y_N, member_VxN),
    )


@dataclass(frozen=True)
class FamilyCorrelation:
    """The correlation of variants with others of their own family."""

    families: int
    """Those with at least three variants."""
    variants: int
    estimate: float | None
    """None: not defined."""
    interval: tuple[float, float] | None


def correlation_within_families(
    x: ArrayLike, y: ArrayLike, families: Sequence[str]
) -> FamilyCorrelation:
    """One x, y and family for each variant: do ranks agree among variants of the same family?

    Variants are ranked within their family, and the ranks, centred and scaled to a common width,
    are correlated over all families. Differences between families therefore have no effect. The
    interval resamples variants within families.
    """
    x_V, y_V = np.asarray(x, np.float64), np.asarray(y, np.float64)
    of_V = np.asarray(families)
    kept = [np.flatnonzero(of_V == name) for name in dict.fromkeys(families)]
    kept = [members for members in kept if len(members) >= FEWEST]
    variants = sum(map(len, kept))
    if not kept:
        return FamilyCorrelation(0, 0, None, None)
    (observed,) = _within(x_V, y_V, [members[None] for members in kept])
    estimate = None if np.isnan(observed) else float(observed)
    interval = None
    if estimate is not None and variants >= FEWEST_FOR_INTERVAL and abs(estimate) < 1 - 1e-9:
        draw = np.random.default_rng(0)
        drawn = [draw.choice(members, (_RESAMPLES, len(members))) for members in kept]
        low, high = np.nanpercentile(_within(x_V, y_V, drawn), [2.5, 97.5])
        interval = float(low), float(high)
    return FamilyCorrelation(len(kept), variants, estimate, interval)


def _within(
    x_V: NDArray[np.float64], y_V: NDArray[np.float64], families: Sequence[NDArray[np.intp]]
) -> NDArray[np.float64]:
    """[R]: the correlation of R samples, whose members of each family are [R, members]."""

    def ranks(values_V: NDArray[np.float64]) -> NDArray[np.float64]:
        of_families = [
            stats.rankdata(values_V[members_RxM], axis=1) / (members_RxM.shape[1] + 1) - 0.5
            for members_RxM in families
        ]
        return np.concatenate(of_families, axis=1)

    a_RxV, b_RxV = ranks(x_V), ranks(y_V)
    ab_R, aa_R, bb_R = ((p * q).sum(1) for p, q in ((a_RxV, b_RxV), (a_RxV, a_RxV), (b_RxV, b_RxV)))
    defined = (aa_R > 0) & (bb_R > 0)
    return np.where(defined, ab_R / np.sqrt(np.where(defined, aa_R * bb_R, 1)), np.nan)


def weighted_spearman(w_RxN: ArrayLike, x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """[R]: the rank correlation if value n occurred w_n times; NaN where it is not defined."""
    weights_RxN: NDArray[np.float64] = np.asarray(w_RxN, np.float64)
    total_R = weights_RxN.sum(-1)

    def centred_ranks(values: ArrayLike) -> NDArray[np.float64]:
        v_N = np.asarray(values)
        above_NxN = (v_N[:, None] < v_N) + 0.5 * (v_N[:, None] == v_N)
        # Centred: half of all weights lie below the mean rank, whatever the ties.
        ranks_RxN: NDArray[np.float64] = weights_RxN @ above_NxN - total_R[:, None] / 2
        return ranks_RxN

    a, b = centred_ranks(x), centred_ranks(y)
    ab_R, aa_R, bb_R = ((weights_RxN * p).sum(-1) for p in (a * b, a * a, b * b))
    defined = (aa_R > 0) & (bb_R > 0)
    rho_R = ab_R / np.sqrt(np.where(defined, aa_R * bb_R, 1))
    return np.where(defined, np.clip(rho_R, -1, 1), np.nan)


def _spearman(x_N: NDArray[np.float64], y_N: NDArray[np.float64], variants: int) -> float | None:
    if variants < FEWEST or len(set(x_N)) == 1 or len(set(y_N)) == 1:
        return None
    return float(stats.spearmanr(x_N, y_N).statistic)


def _interval(
    estimate: float | None,
    x_N: NDArray[np.float64],
    y_N: NDArray[np.float64],
    member_VxN: NDArray[Any],
) -> tuple[float, float] | None:
    variants = len(member_VxN)
    if estimate is None or variants < FEWEST_FOR_INTERVAL or abs(estimate) > 1 - 1e-9:
        return None
    draw = np.random.default_rng(0)
    drawn_RxV = draw.multinomial(variants, np.full(variants, 1 / variants), size=_RESAMPLES)
    varied_RxV = drawn_RxV[(drawn_RxV > 0).sum(-1) >= FEWEST]
    rho_R = weighted_spearman(varied_RxV @ member_VxN, x_N, y_N)
    low, high = np.nanpercentile(rho_R, [2.5, 97.5])
    return float(low), float(high)


def _by_chance(x_V: NDArray[np.float64], y_V: NDArray[np.float64]) -> float:
    x_rank_V, y_rank_V = stats.rankdata(x_V), stats.rankdata(y_V)
    if math.factorial(len(x_V)) <= _PAIRINGS:
        paired_PxV = np.array(list(itertools.permutations(y_rank_V)))
    else:
        drawn = np.tile(y_rank_V, (_PAIRINGS, 1))
        drawn = np.random.default_rng(0).permuted(drawn, axis=1)
        # Includes the observed pairing, so that the share is never 0.
        paired_PxV = np.concatenate([y_rank_V[None], drawn])
    strength_P = abs(paired_PxV @ (x_rank_V - x_rank_V.mean()))
    observed = abs(y_rank_V @ (x_rank_V - x_rank_V.mean()))
    return float((strength_P >= observed - 1e-9).mean())

"""Metrics of a matrix M of attention weights: M_ij is the weight of position j for position i.

    locality(matrix)            one matrix, any array-like: a float, computed in float64
    locality.batched(x)         x is [..., n, n], a numpy or JAX array, also under jit: [...]

Each docstring states what the metric detects and what it does not. The metrics are defined for
weights, whose rows sum to 1; `translation_invariance` and `effective_rank` are also useful for a
bias before its softmax. Always report n: most metrics depend on the length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tupe_jax.utils.errors import UserError

_SHORTEST = 3  # below that no position has a neighbour on either side


@dataclass(frozen=True)
class Metric:
    """A function of one matrix; `batched` applies it to many."""

    name: str
    about: str
    """Definition, range, and what it does and does not detect."""
    formula: Callable[[Any, Any, float], Any]

    def __call__(self, matrix: ArrayLike) -> float:
        given = np.asarray(matrix)
        if given.ndim != 2:
            raise UserError(
                f"{self.name} takes one matrix, not an array of shape {list(given.shape)}; "
                f"{self.name}.batched takes many"
            )
        if given.dtype.kind not in "fiu" or not np.isfinite(given).all():
            raise UserError(f"{self.name} takes finite numbers only")
        return float(self._of(given.astype(np.float64), np, _rounding(given.dtype)))

    def batched(self, matrices: Any) -> Any:
        """[..., n, n] -> [...]; the metric of a matrix that is not finite is not finite."""
        return self._of(matrices, matrices.__array_namespace__(), _rounding(matrices.dtype))

    def _of(self, m: Any, xp: Any, rounding: float) -> Any:
        if m.ndim < 2 or m.shape[-1] != m.shape[-2] or m.shape[-1] < _SHORTEST:
            raise UserError(
                f"{self.name} takes a square matrix of at least {_SHORTEST} positions, "
                f"not an array of shape {list(m.shape)}"
            )
        return self.formula(m, xp, rounding)


METRICS: dict[str, Metric] = {}
"""All metrics by name, in the order of this file."""


def _metric(formula: Callable[[Any, Any, float], Any]) -> Metric:
    metric = Metric(formula.__name__, formula.__doc__ or "", formula)
    METRICS[metric.name] = metric
    return metric


def _rounding(dtype: Any) -> float:
    """The rounding error of a weight of this type, relative to the largest weight of its row.

    Some formulas compare two weights, or divide by their difference. For weights that should be
    equal they would otherwise report the rounding errors of float32.
    """
    return 64 * float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 0.0


@_metric
def locality(m: Any, xp: Any, rounding: float) -> Any:
    """Mean over i of sum_j M_ij / 2^|i-j|, in [0, 1] (Chen et al., 2023).

    1: every position attends to itself; 0.5: to a neighbour. Detects how near the weight is, not on
    which side. It decreases with n for a uniform matrix (0.140 at n = 20, 0.023 at n = 128), and
    does not distinguish distances beyond about ten.
    """
    n = m.shape[-1]
    return (m * 0.5 ** abs(_offsets(xp, n))).sum(-1).mean(-1)


@_metric
def symmetry(m: Any, xp: Any, rounding: float) -> Any:
    """1 - mean of |M_i,i-k - M_i,i+k|, min-max scaled within row i (Chen et al., 2023).

    k = 1 .. min(i, n-1-i); the mean is over all such pairs (i, k) of the matrix. In [0, 1].
    Detects only whether the differences of left and right are equal at all distances: uniform
    causal attention, which is one-sided, has 1; a previous-token head has 0.97 at n = 128. Each row
    is scaled by its own largest difference, so negligible differences count as much as large ones.
    Use it together with `mirror_symmetry`. The released code also scales rounding errors. Here a
    row whose differences vary by at most 64 eps of its largest weight counts as symmetric.
    """
    left, right, is_pair = _mirrored(m, xp)
    difference = abs(left - right)
    lowest = xp.where(is_pair, difference, xp.inf).min(-1, keepdims=True)
    highest = xp.where(is_pair, difference, -xp.inf).max(-1, keepdims=True)
    span = highest - lowest
    differ = is_pair & ~(span <= rounding * abs(m).max(-1, keepdims=True))
    scaled = xp.where(differ, (difference - lowest) / xp.where(differ, span, 1), 0)
    return 1 - scaled.sum((-2, -1)) / is_pair.sum()


@_metric
def mirror_symmetry(m: Any, xp: Any, rounding: float) -> Any:
    """1 - sum |M_i,i-k - M_i,i+k| / sum (M_i,i-k + M_i,i+k), both over all pairs (i, k).

    1: left and right are mirror images; 0: each distance has weight on one side only. Detects
    one-sidedness, which `symmetry` does not, and weights a difference by its size. Does not detect
    the side (`direction` does), nor heads that cancel in a mean: compute it per head. A matrix
    without weight off the diagonal has 1.
    """
    left, right, _ = _mirrored(m, xp)
    difference = _beyond_rounding(left - right, m, xp, rounding)
    return 1 - _ratio(xp, abs(difference).sum((-2, -1)), (left + right).sum((-2, -1)))


@_metric
def direction(m: Any, xp: Any, rounding: float) -> Any:
    """Sum of sign(j-i) M_ij divided by the sum of M_ij off the diagonal.

    -1: only earlier positions; 1: only later ones; 0: equal weight on both sides, at any distance.
    Does not detect asymmetries that cancel, such as near on the left and far on the right.
    """
    side = xp.sign(_offsets(xp, m.shape[-1]))
    return _ratio(xp, (m * side).sum((-2, -1)), (m * abs(side)).sum((-2, -1)))


@_metric
def monotonicity(m: Any, xp: Any, rounding: float) -> Any:
    """Falls / (falls + rises) of the weight with growing distance from i, on both sides.

    1: weights never increase with distance, as for every decay and for uniform rows; 0: they never
    decrease; noise and a previous-token head have 0.5. Detects the order of weights by distance,
    separately for each side, not how fast they fall.
    """
    n = m.shape[-1]
    step = _beyond_rounding(m[..., 1:] - m[..., :-1], m, xp, rounding)
    outwards = step * xp.where(_offsets(xp, n)[:, :-1] >= 0, 1, -1)
    rises = xp.maximum(outwards, 0).sum((-2, -1))
    falls = xp.maximum(-outwards, 0).sum((-2, -1))
    return 1 - _ratio(xp, rises, rises + falls)


@_metric
def entropy(m: Any, xp: Any, rounding: float) -> Any:
    """Mean over i of -sum_j M_ij ln M_ij, in nats.

    0: each position attends to one position; ln n: to all equally. Detects how many positions share
    the weight (about exp(entropy)), not where they are. The entropy of a mean over words or heads
    is larger than the mean of their entropies.
    """
    logarithm = xp.log(xp.where(m > 0, m, 1))
    return -(m * logarithm).sum(-1).mean(-1)


@_metric
def translation_invariance(m: Any, xp: Any, rounding: float) -> Any:
    """Share of the variance of M_ij that the distance j - i explains: how Toeplitz M is, in [0, 1].

    1: M depends only on j - i; a matrix without variance has 1, a random one about 2 / n. Softmax
    makes rows sum to 1, so the weights of a Toeplitz bias are not Toeplitz near the borders: use
    the bias for an exact value.
    """
    n = m.shape[-1]
    diagonals = _as_diagonals(m, xp)
    inside = _as_diagonals(xp.ones_like(m), xp)
    mean = diagonals.sum(-2, keepdims=True) / inside.sum(-2, keepdims=True)
    unexplained = (inside * (diagonals - mean) ** 2).sum((-2, -1))
    deviation = m - m.mean((-2, -1), keepdims=True)
    total = (deviation**2).sum((-2, -1))
    noise = (rounding * n * abs(m).max((-2, -1))) ** 2
    return 1 - _ratio(xp, xp.where(total <= noise, 0, unexplained), total)


@_metric
def effective_rank(m: Any, xp: Any, rounding: float) -> Any:
    """Exp of the entropy of the singular values, scaled to sum to 1 (Roy and Vetterli, 2007).

    1: all rows are multiples of one row, as in a uniform matrix; n: an orthogonal matrix, as of a
    head with a fixed offset. Detects the number of patterns in the rows, not which ones. Softmax
    raises it: the bias, not the weights, shows that TUPE's untied term has rank at most d.
    """
    values = xp.linalg.svdvals(m)
    share = values / values.sum(-1, keepdims=True)
    return xp.exp(-(share * xp.log(xp.where(share > 0, share, 1))).sum(-1))


def _offsets(xp: Any, n: int) -> Any:
    """The matrix of j - i."""
    position = xp.arange(n)
    return position[None, :] - position[:, None]


def _mirrored(m: Any, xp: Any) -> tuple[Any, Any, Any]:
    """M_i,i-k and M_i,i+k as [..., i, k], zero where one is outside; and a mask of the pairs."""
    n = m.shape[-1]
    i, k = xp.arange(n)[:, None], xp.arange(1, (n - 1) // 2 + 1)[None, :]
    is_pair = (i - k >= 0) & (i + k < n)
    left, right = (m[..., i, xp.where(is_pair, j, 0)] for j in (i - k, i + k))
    return xp.where(is_pair, left, 0), xp.where(is_pair, right, 0), is_pair


def _as_diagonals(m: Any, xp: Any) -> Any:
    """[..., n, 2n-1]: the diagonals of M as columns, from j - i = 1-n to n-1, the rest zeros."""
    *batch, n, _ = m.shape
    # Padded by n zeros and read in rows one shorter, row r moves r columns to the right. The last
    # row of M comes first: its weights have the smallest j - i.
    from_below = m[..., ::-1, :]
    padded = xp.concatenate([from_below, xp.zeros_like(m)], axis=-1).reshape(*batch, 2 * n * n)
    return padded[..., : n * (2 * n - 1)].reshape(*batch, n, 2 * n - 1)


def _ratio(xp: Any, part: Any, whole: Any) -> Any:
    """`part / whole`, 0 where `whole` is 0."""
    nothing = whole <= 0
    return xp.where(nothing, 0, part / xp.where(nothing, 1, whole))


def _beyond_rounding(difference: Any, m: Any, xp: Any, rounding: float) -> Any:
    """Differences of weights in a row, set to 0 if rounding errors can explain them."""
    return xp.where(abs(difference) <= rounding * abs(m).max(-1, keepdims=True), 0, difference)

"""Numbers for a matrix M of attention weights: M_ij is how much position i attends to position j.

    locality(matrix)            one matrix, anything numpy can read: a float, computed in float64
    locality.batched(x)         x is [..., n, n], of numpy or of JAX, also under jit: [...]

Each function below says what it can and cannot see. They are made for weights, whose rows sum to 1;
`translation_invariance` and `effective_rank` are as useful for a bias before its softmax.
Most of them change with the length n for what one would call the same head: state n beside them.
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
    """A number for a matrix; `batched` gives one for each of many."""

    name: str
    about: str
    """Definition, range, what it sees and what it does not."""
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
        """[..., n, n] -> [...]; where a matrix is not finite, neither is its number."""
        return self._of(matrices, matrices.__array_namespace__(), _rounding(matrices.dtype))

    def _of(self, m: Any, xp: Any, rounding: float) -> Any:
        if m.ndim < 2 or m.shape[-1] != m.shape[-2] or m.shape[-1] < _SHORTEST:
            raise UserError(
                f"{self.name} takes a square matrix of at least {_SHORTEST} positions, "
                f"not an array of shape {list(m.shape)}"
            )
        return self.formula(m, xp, rounding)


METRICS: dict[str, Metric] = {}
"""All of them, by name, in the order of this file."""


def _metric(formula: Callable[[Any, Any, float], Any]) -> Metric:
    metric = Metric(formula.__name__, formula.__doc__ or "", formula)
    METRICS[metric.name] = metric
    return metric


def _rounding(dtype: Any) -> float:
    """What arithmetic of this type may add to a weight, relative to its row's largest.

    Some formulas ask which of two weights is larger, or divide by how much weights differ. Of
    weights that should be equal, and come from a model in float32, they would report the rounding.
    """
    return 64 * float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 0.0


@_metric
def locality(m: Any, xp: Any, rounding: float) -> Any:
    """Mean over i of sum_j M_ij / 2^|i-j|, in [0, 1] (Chen et al., 2023).

    1: every position attends to itself; 0.5: to a neighbour. Sees how near the weight lies, not on
    which side. It falls with n for a flat matrix (0.140 at n = 20, 0.023 at n = 128), and beyond a
    distance of about ten it does not tell far from farther.
    """
    n = m.shape[-1]
    return (m * 0.5 ** abs(_offsets(xp, n))).sum(-1).mean(-1)


@_metric
def symmetry(m: Any, xp: Any, rounding: float) -> Any:
    """1 - mean of |M_i,i-k - M_i,i+k|, min-max scaled within row i (Chen et al., 2023).

    k = 1 .. min(i, n-1-i); the mean is over all such pairs (i, k) of the matrix. In [0, 1].
    Sees whether the differences of left and right are alike at all distances, and no more: uniform
    causal attention, wholly one-sided, has 1; a previous-token head 0.97 at n = 128. Since each row
    is scaled by its own largest difference, differences that hardly matter count as much as large
    ones. Read it beside `mirror_symmetry`. The released code scales rounding, too. Here a row whose
    differences vary by no more than 64 eps of its largest weight counts as symmetric.
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

    1: left and right are mirror images; 0: each distance has weight on one side only. Sees
    one-sidedness, which `symmetry` does not, and counts a difference by the weight it moves. Does
    not see which side (`direction` does), nor heads that cancel in a mean: take it of each head.
    A matrix without weight beside the diagonal has 1.
    """
    left, right, _ = _mirrored(m, xp)
    difference = _beyond_rounding(left - right, m, xp, rounding)
    return 1 - _ratio(xp, abs(difference).sum((-2, -1)), (left + right).sum((-2, -1)))


@_metric
def direction(m: Any, xp: Any, rounding: float) -> Any:
    """Sum of sign(j-i) M_ij over the sum of M_ij beside the diagonal.

    -1: only earlier positions; 1: only later ones; 0: as much here as there, at whatever distances.
    Does not see asymmetries that cancel, such as near ones to the left and far ones to the right.
    """
    side = xp.sign(_offsets(xp, m.shape[-1]))
    return _ratio(xp, (m * side).sum((-2, -1)), (m * abs(side)).sum((-2, -1)))


@_metric
def monotonicity(m: Any, xp: Any, rounding: float) -> Any:
    """Falls / (falls + rises) of the weight on the way from i outwards, to either side.

    1: a weight is never larger than one nearer to i, as for every decay, and for flat rows; 0: the
    farther the larger; noise and a previous-token head have 0.5. Sees the order of weights by
    distance, not how fast they fall, and each side by itself.
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

    0: each position attends to one; ln n: to all alike. Sees how many positions share the weight
    (about exp of it), not where they are. Of a mean over words or heads it is larger than the mean
    of their entropies.
    """
    logarithm = xp.log(xp.where(m > 0, m, 1))
    return -(m * logarithm).sum(-1).mean(-1)


@_metric
def translation_invariance(m: Any, xp: Any, rounding: float) -> Any:
    """Share of the variance of M_ij that the distance j - i explains: how Toeplitz M is, in [0, 1].

    1: M depends on j - i alone; a matrix without variance has 1, a random one about 2 / n. Softmax
    makes rows sum to 1, so that near the borders the weights of a Toeplitz bias are not Toeplitz:
    take it of the bias to be exact.
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

    1: all rows are multiples of one, as in a flat matrix; n: an orthogonal matrix, as of a head
    that moves by a fixed distance. Sees how many patterns the rows are made of, not which. Softmax
    raises it: that TUPE's untied term has rank d at most is seen in the bias, not in the weights.
    """
    values = xp.linalg.svdvals(m)
    share = values / values.sum(-1, keepdims=True)
    return xp.exp(-(share * xp.log(xp.where(share > 0, share, 1))).sum(-1))


def _offsets(xp: Any, n: int) -> Any:
    """The matrix of j - i."""
    place = xp.arange(n)
    return place[None, :] - place[:, None]


def _mirrored(m: Any, xp: Any) -> tuple[Any, Any, Any]:
    """M_i,i-k and M_i,i+k as [..., i, k], zero where one of them is outside; and where not."""
    n = m.shape[-1]
    i, k = xp.arange(n)[:, None], xp.arange(1, (n - 1) // 2 + 1)[None, :]
    is_pair = (i - k >= 0) & (i + k < n)
    left, right = (m[..., i, xp.where(is_pair, j, 0)] for j in (i - k, i + k))
    return xp.where(is_pair, left, 0), xp.where(is_pair, right, 0), is_pair


def _as_diagonals(m: Any, xp: Any) -> Any:
    """[..., n, 2n-1]: the diagonals of M as columns, from j - i = 1-n to n-1, the rest zeros."""
    *batch, n, _ = m.shape
    # Padded by n zeros and read in rows one shorter, the r-th row moves r places to the right. The
    # last row of M comes first: its weights have the smallest j - i.
    from_below = m[..., ::-1, :]
    padded = xp.concatenate([from_below, xp.zeros_like(m)], axis=-1).reshape(*batch, 2 * n * n)
    return padded[..., : n * (2 * n - 1)].reshape(*batch, n, 2 * n - 1)


def _ratio(xp: Any, part: Any, whole: Any) -> Any:
    """`part / whole`, 0 where there is nothing."""
    nothing = whole <= 0
    return xp.where(nothing, 0, part / xp.where(nothing, 1, whole))


def _beyond_rounding(difference: Any, m: Any, xp: Any, rounding: float) -> Any:
    """Differences of weights of a row, 0 where weights that are equal may have them."""
    return xp.where(abs(difference) <= rounding * abs(m).max(-1, keepdims=True), 0, difference)

"""The metrics of GLUE: functions of predictions and labels; higher is better.

Predictions are class numbers, or scores for regression. Where a metric is undefined, it returns
what scikit-learn and SciPy return: 0 for F1 and Matthews, NaN for the correlations.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

MetricFunction = Callable[[NDArray[Any], NDArray[Any]], float]


def accuracy(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    return float(np.mean(predictions == labels))


def f1(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    """F1 of class 1, "yes" in the tasks that report it."""
    found = np.sum((predictions == 1) & (labels == 1))
    claimed_and_true = np.sum(predictions == 1) + np.sum(labels == 1)
    return float(2 * found / claimed_and_true) if claimed_and_true else 0.0


def matthews(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    """Matthews correlation, for any number of classes: the Pearson correlation of one-hot rows."""
    classes = np.union1d(predictions, labels)
    predicted_NxC = (predictions[:, None] == classes).astype(np.float64)
    true_NxC = (labels[:, None] == classes).astype(np.float64)

    def covariance(a_NxC: NDArray[np.float64], b_NxC: NDArray[np.float64]) -> float:
        # Times N squared: integers, so that the variance of a constant is exactly 0.
        return float(len(a_NxC) * np.sum(a_NxC * b_NxC) - a_NxC.sum(0) @ b_NxC.sum(0))

    variances = covariance(predicted_NxC, predicted_NxC) * covariance(true_NxC, true_NxC)
    return covariance(predicted_NxC, true_NxC) / variances**0.5 if variances else 0.0


def pearson(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    return _correlation(stats.pearsonr, predictions, labels)


def spearman(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    return _correlation(stats.spearmanr, predictions, labels)


def _correlation(
    function: Callable[..., Any], predictions: NDArray[Any], labels: NDArray[Any]
) -> float:
    if len(labels) < 2:
        return math.nan
    with warnings.catch_warnings():  # for constant input, which a model may predict at first
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        # In float32, sums of a few thousand scores are wrong in the fifth digit.
        result = function(predictions.astype(np.float64), labels.astype(np.float64))
    return float(result.statistic)


METRICS: Mapping[str, MetricFunction] = {
    metric.__name__: metric for metric in (accuracy, f1, matthews, pearson, spearman)
}

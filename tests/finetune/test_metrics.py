"""Metrics equal those of scikit-learn and SciPy, also for constant predictions."""

import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from tupe_jax.finetune.metrics import METRICS

CLASS_METRICS = {
    "accuracy": sklearn_metrics.accuracy_score,
    "f1": sklearn_metrics.f1_score,
    "matthews": sklearn_metrics.matthews_corrcoef,
}
SCORE_METRICS = {
    "pearson": lambda labels, predictions: stats.pearsonr(labels, predictions).statistic,
    "spearman": lambda labels, predictions: stats.spearmanr(labels, predictions).statistic,
}


def ours_and_theirs(name, theirs, predictions, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # ours are silent
        ours = METRICS[name](predictions, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ours, float(theirs(labels, predictions))


def test_every_metric_is_compared():
    assert METRICS.keys() == CLASS_METRICS.keys() | SCORE_METRICS.keys()


@pytest.mark.parametrize("name", CLASS_METRICS)
@pytest.mark.parametrize("seed", range(5))
def test_two_classes(name, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 301)
    predictions = np.where(rng.random(301) < 0.7, labels, rng.integers(0, 2, 301))
    ours, theirs = ours_and_theirs(name, CLASS_METRICS[name], predictions, labels)
    assert 0 < ours < 1
    assert ours == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("name", ["accuracy", "matthews"])
def test_three_classes(name):
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, 3, (2, 200)).astype(np.int32)
    ours, theirs = ours_and_theirs(name, CLASS_METRICS[name], predictions, labels)
    assert ours == pytest.approx(theirs, rel=1e-12)


DEGENERATE = {
    "only class 0": ([0, 0, 0], [0, 0, 0]),
    "only class 1": ([1, 1, 1], [1, 1, 1]),
    "always 0": ([0, 0, 0], [0, 1, 1]),
    "always 1": ([1, 1, 1], [0, 1, 1]),
    "one class in the labels": ([0, 1, 1], [1, 1, 1]),
    "all wrong": ([0, 1, 0], [1, 0, 1]),
    "one example": ([1], [0]),
}


@pytest.mark.parametrize("name", CLASS_METRICS)
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_classes(name, case):
    predictions, labels = (np.array(values, np.int32) for values in DEGENERATE[case])
    ours, theirs = ours_and_theirs(name, CLASS_METRICS[name], predictions, labels)
    assert ours == pytest.approx(theirs, abs=1e-15)


@pytest.mark.parametrize("name", SCORE_METRICS)
@pytest.mark.parametrize("seed", range(5))
def test_scores(name, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 26, 400) / 5  # with ties, as in STS-B
    predictions = labels + rng.normal(size=400)
    ours, theirs = ours_and_theirs(name, SCORE_METRICS[name], predictions, labels)
    assert ours == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("name", SCORE_METRICS)
def test_constant_scores_and_those_of_a_model_gone_astray_have_no_correlation(name):
    labels = np.array([1.0, 2.0, 4.0], np.float32)
    for predictions in ([3.0, 3.0, 3.0], [np.nan, 1.0, 2.0]):
        ours, theirs = ours_and_theirs(
            name, SCORE_METRICS[name], np.array(predictions, np.float32), labels
        )
        assert np.isnan(ours)
        assert np.isnan(theirs)


@pytest.mark.parametrize("name", SCORE_METRICS)
def test_nearly_constant_scores_are_distinguished_without_warnings(name):
    labels = np.arange(4.0)
    predictions = 1.0 + labels * 1e-15
    ours, theirs = ours_and_theirs(name, SCORE_METRICS[name], predictions, labels)
    assert ours == theirs


def test_scores_in_single_precision_are_not_summed_in_it():
    rng = np.random.default_rng(0)
    labels = (1e4 + rng.normal(size=2000)).astype(np.float32)
    predictions = (labels + rng.normal(size=2000)).astype(np.float32)
    exact = np.corrcoef(predictions.astype(np.float64), labels.astype(np.float64))[0, 1]
    assert METRICS["pearson"](predictions, labels) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_a_single_score_has_no_correlation(name):
    assert np.isnan(METRICS[name](np.array([0.5]), np.array([1.0])))

"""The median over seeds of each learning rate, and the best of these."""

import math

import pytest

from tests.finetune.results import result
from tupe_jax.finetune.glue.aggregation import summarize_task
from tupe_jax.finetune.results import TrialResult


def best(trial: TrialResult):
    return trial.best


def last(trial: TrialResult):
    return trial.last


def score_of(by_rate, moment=best, planned=6):
    results = [
        result(rate, seed, {"dev": value}, "accuracy")
        for rate, values in by_rate.items()
        for seed, value in enumerate(values)
    ]
    return summarize_task(results, "accuracy", moment, planned)


def test_the_best_rate_is_that_of_the_highest_median_not_of_the_highest_score():
    reported = score_of({2e-5: [0.1, 0.7, 0.99], 3e-5: [0.72, 0.71, 0.0]}).reported("dev")
    assert (reported.learning_rate, reported.median) == (3e-5, 0.71)
    assert (reported.lowest, reported.highest) == (0.0, 0.72)


def test_the_median_of_an_even_number_is_between_the_middle_two():
    assert score_of({2e-5: [0.1, 0.2, 0.4, 0.9]}).reported("dev").median == pytest.approx(0.3)


def test_of_equal_rates_the_first_counts():
    assert score_of({5e-5: [0.5], 2e-5: [0.5]}).best_rate == 2e-5


def test_the_last_evaluation_chooses_its_own_rate():
    assert score_of({2e-5: [0.7]}, last).reported("dev").median == pytest.approx(0.6)


def test_mnli_takes_both_numbers_at_the_rate_that_is_best_on_matched():
    results = [
        result(2e-5, 0, {"dev_matched": 0.8, "dev_mismatched": 0.9}, "accuracy"),
        result(3e-5, 0, {"dev_matched": 0.85, "dev_mismatched": 0.7}, "accuracy"),
    ]
    score = summarize_task(results, "accuracy", best, 2)
    assert score.reported("dev_matched").median == 0.85
    assert score.reported("dev_mismatched").median == 0.7


def test_a_correlation_without_a_value_counts_as_none():
    score = score_of({2e-5: [math.nan, math.nan, 0.3], 3e-5: [-0.1]})
    assert score.reported("dev").by_seed == {0: 0.0, 1: 0.0, 2: 0.3}
    assert score.reported("dev").median == 0.0


def test_what_is_finished_is_counted():
    score = score_of({2e-5: [0.1, 0.2]}, planned=20)
    assert (score.finished, score.planned) == (2, 20)
    nothing = score_of({})
    assert (nothing.finished, nothing.best_rate, nothing.reported("dev")) == (0, None, None)

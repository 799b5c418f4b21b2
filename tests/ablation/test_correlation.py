"""Rank correlation over variants: SciPy's number, the coverage of its interval, and its limits."""

import numpy as np
import pytest
from scipy import stats

from tupe_jax.ablation.correlation import (
    correlation_within_families,
    rank_correlation,
    weighted_spearman,
)


def study(variants, seeds=3, *, slope=1.0, between=1.0, within=0.0, seed=0):
    """An x for each variant and y = slope x + noise between variants and within them, by run."""
    rng = np.random.default_rng(seed)
    x_V = rng.standard_normal(variants)
    y_V = slope * x_V + between * rng.standard_normal(variants)
    x, y = (
        np.repeat(x_V, seeds),
        np.repeat(y_V, seeds) + within * rng.standard_normal(variants * seeds),
    )
    return x, y, np.repeat([f"v{i}" for i in range(variants)], seeds)


def test_weights_of_one_give_the_ordinary_correlation_with_ties():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (2, 30))
    assert weighted_spearman(np.ones((1, 30)), x, y) == pytest.approx(
        [stats.spearmanr(x, y).statistic]
    )


def test_a_weight_is_a_number_of_copies():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 8))
    weights = rng.multinomial(8, np.full(8, 1 / 8), size=20)
    copies = [np.repeat(np.arange(8), w) for w in weights]
    expected = [stats.spearmanr(x[of], y[of]).statistic for of in copies]
    np.testing.assert_allclose(weighted_spearman(weights, x, y), expected, atol=1e-12)


def test_resamples_of_one_value_are_undefined_not_zero():
    assert np.isnan(weighted_spearman([[3, 0, 0]], [1, 2, 3], [1, 2, 3])).all()


def test_means_of_variants_and_runs_are_correlated_apart():
    x, y, names = [1, 1, 2, 2, 3, 3], [1, 2, 5, 6, 3, 4], ["a", "a", "b", "b", "c", "c"]
    result = rank_correlation(x, y, names)
    assert (result.variants, result.runs) == (3, 6)
    assert result.of_means == pytest.approx(0.5)
    assert result.of_runs == pytest.approx(stats.spearmanr(x, y).statistic)


def test_the_order_of_runs_does_not_matter():
    x, y, names = study(6, within=0.5)
    mixed = np.random.default_rng(0).permutation(len(x))
    assert rank_correlation(x[mixed], y[mixed], names[mixed]) == rank_correlation(x, y, names)


def test_more_seeds_of_the_same_variants_do_not_make_it_surer():
    few, many = (rank_correlation(*study(8, seeds)) for seeds in (1, 10))
    assert many.of_means == few.of_means
    assert many.interval == few.interval
    assert many.runs_interval == pytest.approx(few.runs_interval, abs=0.05)


def test_more_variants_make_it_surer():
    few, many = (rank_correlation(*study(variants)) for variants in (6, 60))
    assert np.diff(many.interval) < 0.5 * np.diff(few.interval)


def test_the_interval_has_about_its_nominal_coverage():
    truth = 6 / np.pi * np.arcsin(0.5**0.5 / 2)  # Spearman's of a normal pair with r = 1/sqrt(2)
    inside = 0
    for seed in range(40):
        low, high = rank_correlation(*study(20, seeds=1, seed=seed)).interval
        inside += low <= truth <= high
    assert 34 <= inside < 40


def test_independent_sides_have_zero_inside():
    low, high = rank_correlation(*study(12, slope=0.0, seed=2)).interval
    assert low < 0 < high


@pytest.mark.parametrize(
    ("x", "y"),
    [([1, 2], [1, 2]), ([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]), ([1, 2, 3, 4, 5], [1, 1, 1, 1, 1])],
)
def test_too_few_variants_or_no_differences_have_no_correlation(x, y):
    result = rank_correlation(x, y, [str(i) for i in range(len(x))])
    assert result.of_means is result.interval is result.by_chance is None
    assert result.of_runs is result.runs_interval is None


def test_four_variants_have_a_correlation_without_interval():
    result = rank_correlation([1, 2, 3, 4], [1, 3, 2, 4], list("abcd"))
    assert result.of_means == pytest.approx(0.8)
    assert result.interval is None
    assert result.by_chance == pytest.approx(8 / 24)


def test_perfect_order_has_no_interval_of_no_width():
    result = rank_correlation(range(6), range(0, -6, -1), list("abcdef"))
    assert result.of_means == pytest.approx(-1)
    assert result.interval is None
    assert result.by_chance == pytest.approx(2 / 720)


def test_chance_with_many_variants_is_near_the_textbook():
    x, y, names = study(12, seeds=1, slope=0.5, seed=3)
    expected = stats.spearmanr(x, y).pvalue
    assert rank_correlation(x, y, names).by_chance == pytest.approx(expected, abs=0.02)


def test_chance_is_never_nothing():
    """Of twelve variants in perfect order no random pairing is as good: 2 of 479 million are."""
    result = rank_correlation(range(12), range(12), list("abcdefghijkl"))
    assert result.by_chance == pytest.approx(1 / 10_001)


def test_differences_between_families_count_for_nothing():
    # Family b is higher in both, but within each family x and y are in opposite order.
    x, y = [1, 2, 3, 11, 12, 13], [3, 2, 1, 13, 12, 11]
    found = correlation_within_families(x, y, list("aaabbb"))
    assert found.estimate == pytest.approx(-1)
    assert (found.families, found.variants, found.interval) == (2, 6, None)
    assert rank_correlation(x, y, list("123456")).of_means > 0.5


def test_a_single_family_has_the_ordinary_correlation():
    x, y, _ = study(12, seeds=1)
    found = correlation_within_families(x, y, ["a"] * 12)
    assert found.estimate == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.interval[0] < found.estimate < found.interval[1]


def test_families_of_two_are_left_out():
    found = correlation_within_families([1, 2, 3, 4, 5], [1, 2, 3, 9, 8], list("aaabb"))
    assert (found.families, found.variants, found.estimate) == (1, 3, pytest.approx(1))
    assert correlation_within_families([1, 2], [1, 2], ["a", "b"]).estimate is None

"""Dropout by counting looks random along every axis, and is a function of its arguments."""

import itertools

import numpy as np
import pytest

from tupe_jax.kernels.dropout import is_kept

SEEDS, ROWS, HEADS, SIZE = 8, 4, 4, 128
AXES = ("seed", "row", "head", "i", "j")


def masks(rate, seeds):
    grid = np.ix_(*(np.arange(n) for n in (ROWS, HEADS, SIZE, SIZE)))
    return np.stack([np.asarray(is_kept(np.uint32(s), *grid, rate=rate)) for s in seeds])


@pytest.fixture(scope="module", params=[0.1, 0.5])
def noise(request):
    """What is kept at neighbouring seeds, rows, ..., with mean 0 and variance 1."""
    rate = request.param
    return (masks(rate, range(SEEDS)) - (1 - rate)) / np.sqrt(rate * (1 - rate))


def z(products):
    """How many standard deviations a mean of independent products is away from 0."""
    return products.sum() / np.sqrt(products.size)


def moved(x, axes, step=1):
    """X and x moved on by a step along each of some axes, where both exist."""
    near, far = ([slice(None)] * x.ndim for _ in range(2))
    for axis in axes:
        near[axis], far[axis] = slice(None, -step), slice(step, None)
    return x[tuple(near)], x[tuple(far)]


def test_the_rate_is_kept(noise):
    assert abs(z(noise)) < 4


@pytest.mark.parametrize("axis", range(5), ids=AXES)
def test_the_rate_is_kept_at_every_place_of_an_axis(noise, axis):
    others = tuple(n for n in range(5) if n != axis)
    scores = noise.sum(others) / np.sqrt(noise.size / noise.shape[axis])
    assert np.abs(scores).max() < 5


@pytest.mark.parametrize("axes", [c for n in (1, 2) for c in itertools.combinations(range(5), n)])
def test_neighbours_are_independent(noise, axes):
    near, far = moved(noise, axes)
    assert abs(z(near * far)) < 4.5


@pytest.mark.parametrize("axes", [(3, 4), (2, 3), (1, 4), (0, 3), (0, 1)])
@pytest.mark.parametrize("step", [1, 2])
def test_corners_of_rectangles_are_independent(noise, axes, step):
    """A sum of a number per query and one per key would fail here."""
    first, second = axes
    pairs = np.multiply(*moved(noise, [first], step))
    assert abs(z(np.multiply(*moved(pairs, [second], step)))) < 4.5


def test_columns_and_rows_of_a_mask_are_independent(noise):
    """All pairs of columns (and rows) at once: the variance of their correlations is 1."""
    for mask in (noise[0, 0, 0], noise[1, 2, 3].T):
        correlation = mask.T @ mask / np.sqrt(SIZE)
        pairs = correlation[np.triu_indices(SIZE, 1)]
        spread = (np.mean(noise[..., :8, :] ** 4) + 1) / pairs.size  # kurtosis of rare events
        assert abs(pairs.var() - 1) < 6 * np.sqrt(spread)


def test_neighbouring_and_distant_seeds_differ():
    a, b, c = masks(0.5, [0, 1, 2**31])
    for one, other in ((a, b), (a, c), (b, c)):
        assert np.mean(one == other) == pytest.approx(0.5, abs=0.005)


def test_a_place_is_enough_to_know():
    rate, whole = 0.3, masks(0.3, [5])[0]
    assert bool(is_kept(np.uint32(5), 3, 2, 100, 7, rate=rate)) == whole[3, 2, 100, 7]

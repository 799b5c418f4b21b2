"""Learning rates at the corners of every schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.training.optim.schedule import learning_rate


def rates(schedule, *, total=100, warmup=10, decay=0, updates=100, **settings):
    config = OptimizerConfig(
        schedule=schedule, peak_learning_rate=2.0, **{"final_fraction": 0.1, **settings}
    )
    function = learning_rate(config, total_steps=total, warmup_steps=warmup, decay_steps=decay)
    return np.asarray(jax.jit(function)(jnp.arange(updates)))


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd", "constant"])
def test_warm_up_in_equal_parts(schedule):
    np.testing.assert_allclose(rates(schedule, decay=20)[:10], 0.2 * np.arange(1, 11), rtol=1e-6)


def test_linear():
    np.testing.assert_allclose(rates("linear")[9:], np.linspace(2, 0.2, 91), rtol=1e-5)


def test_cosine():
    expected = 0.2 + 1.8 * (1 + np.cos(np.linspace(0, np.pi, 91))) / 2
    np.testing.assert_allclose(rates("cosine")[9:], expected, rtol=1e-5)


def test_wsd():
    ours = rates("wsd", decay=20)
    np.testing.assert_allclose(ours[9:80], 2)
    np.testing.assert_allclose(ours[79:], np.linspace(2, 0.2, 21), rtol=1e-5)


def test_constant():
    np.testing.assert_allclose(rates("constant")[9:], 2)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_after_the_end_it_stays_at_its_last_value(schedule):
    ours = rates(schedule, decay=20, updates=150)
    np.testing.assert_allclose(ours[99:], 0.2, rtol=1e-5)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd", "constant"])
def test_no_warm_up(schedule):
    expected = 2.0 if schedule in ("wsd", "constant") else 2 * (0.1 + 0.9 * 0.99)
    tolerance = 0.02 if schedule == "cosine" else 1e-6
    assert abs(rates(schedule, warmup=0, decay=20)[0] / expected - 1) < tolerance


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd", "constant"])
def test_a_warm_up_as_long_as_the_run(schedule):
    np.testing.assert_allclose(
        rates(schedule, total=10, warmup=20, updates=10), 0.1 * np.arange(1, 11), rtol=1e-6
    )


def test_a_decay_that_starts_within_the_warm_up():
    ours = rates("wsd", total=10, warmup=8, decay=8, updates=10, final_fraction=0.0)
    rise, fall = np.arange(1, 11) / 8, (10 - np.arange(1, 11)) / 8
    np.testing.assert_allclose(ours, 2 * np.minimum(np.minimum(rise, fall), 1), rtol=1e-6)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd", "constant"])
def test_a_warm_up_from_zero_is_the_same_schedule_one_update_later(schedule):
    later = rates(schedule, decay=20, warmup_from_zero=True)
    np.testing.assert_array_equal(later, [0, *rates(schedule, decay=20)[:-1]])


def official_rates(peak, warmup, total):
    """The official trainer sets the rate of an update from the number of updates before it."""
    rise = [peak * n / warmup for n in range(warmup + 1)]
    fall = [peak * (1 - (n - warmup) / (total - warmup)) for n in range(warmup + 1, total)]
    return rise + fall


@pytest.mark.parametrize(("warmup", "total"), [(4, 20), (10, 1000), (10_000, 1_000_000)])
def test_the_paper_recipe_has_the_official_rate_at_every_update(warmup, total):
    config = from_config_dict(load_config("tupe_r")).optimizer
    schedule = learning_rate(config, total_steps=total, warmup_steps=warmup, decay_steps=0)
    ours = np.asarray(schedule(jnp.arange(total)))
    expected = official_rates(config.peak_learning_rate, warmup, total)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-11)
    assert ours[0] == 0
    assert ours[-1] > 0


def test_a_million_steps_keep_their_digits():
    config = OptimizerConfig()
    function = learning_rate(config, total_steps=10**6, warmup_steps=10_000, decay_steps=0)
    assert function(10**6 - 1) == 0
    np.testing.assert_allclose(function(10**6 - 2), 1e-4 / 990_000, rtol=1e-2)
    np.testing.assert_allclose(function(504_999), 0.5e-4, rtol=1e-6)

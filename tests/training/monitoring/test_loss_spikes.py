"""Loss spikes are reported; noise and the fall at the start are not."""

import math

import numpy as np
import pytest

from tupe_jax.training.monitoring.loss_spikes import SpikeDetector, spike


def curve(steps=2000, noise=0.05, seed=0):
    """A usual loss: falls from 10 to a plateau at 6, then slowly to 2; noise all the way."""
    step = np.arange(steps)
    mean = 2 + 4 * np.exp(-step / 700) + 4 * np.exp(-step / 30)
    return mean + noise * mean * np.random.default_rng(seed).standard_normal(steps)


def spikes_in(losses):
    detector = SpikeDetector()
    return [step for step, loss in enumerate(losses) if detector.observe(float(loss))]


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.02, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_a_usual_curve_has_no_spike(noise, seed):
    assert spikes_in(curve(noise=noise, seed=seed)) == []


@pytest.mark.parametrize("at", [200, 500, 1900])
def test_a_jump_is_reported_once_at_its_first_loss(at):
    losses = curve(noise=0.02)
    losses[at : at + 15] *= 1.8
    assert spikes_in(losses) == [at]


def test_a_second_spike_is_reported_although_the_first_is_recent():
    losses = curve(noise=0.02)
    losses[500:510] *= 2
    losses[540:550] *= 2
    assert spikes_in(losses) == [500, 540]


def test_a_loss_that_stays_high_becomes_usual_and_a_further_rise_is_reported():
    losses = np.concatenate([np.full(200, 2.0), np.full(200, 4.0), np.full(10, 8.0)])
    assert spikes_in(losses) == [200, 400]


def test_both_measures_must_agree():
    quiet = [3.0, 3.01] * 20
    assert spike(3.5, quiet) is None  # a hundred deviations, but a sixth above only
    loud = [1.0, 3.0] * 20
    assert spike(6.0, loud) is None  # three times the usual, but three deviations only
    assert spike(4.0, quiet) is not None


def test_a_loss_that_is_not_finite_is_ignored():
    detector = SpikeDetector()
    for loss in [3.0] * 30 + [math.nan, math.inf] * 50:
        assert detector.observe(loss) is None
    assert detector.observe(9.0) is not None


def test_the_message_names_both_losses():
    assert str(spike(9.0, [3.0] * 30)) == "loss spike: 9.000, while 3.000 was usual"

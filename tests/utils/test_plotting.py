"""Pictures are drawn for every shape of input, and show what they are given."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.image import imread

from tupe_jax.utils.plotting import (
    attention_by_position,
    loss_curve,
    position_matrices,
    smoothed,
)

BLUE, ORANGE = (0, 114, 178), (213, 94, 0)


def pixels_of(path, colour):
    image = np.round(imread(path)[..., :3] * 255)
    return int((image == colour).all(-1).sum())


def run_of(steps):
    lines = [{"step": step, "loss": 9 - step / 100} for step in range(10, steps, 10)]
    return [*lines, {"step": steps, "valid_loss": 4.0, "valid_accuracy": 0.5}]


def test_loss_curve_shows_training_and_validation(tmp_path):
    path = tmp_path / "loss.png"
    loss_curve(run_of(300), path, unit="nats per token", baseline=6.0)
    assert pixels_of(path, BLUE) > 100
    assert pixels_of(path, ORANGE) > 10
    assert [file.name for file in tmp_path.iterdir()] == ["loss.png"]


@pytest.mark.parametrize(
    "metrics",
    [[], [{"step": 1, "loss": 3.0}], [{"step": 1, "loss": None}, {"step": 2, "valid_loss": 1.0}]],
)
def test_loss_curve_of_a_run_that_has_just_begun(metrics, tmp_path):
    loss_curve(metrics, tmp_path / "loss.png", unit="nats per token", baseline=None)
    assert imread(tmp_path / "loss.png").ndim == 3


def test_smoothing_keeps_a_straight_line_straight_to_its_ends():
    line = np.linspace(9, 3, 400)
    np.testing.assert_allclose(smoothed(line), line)


def test_smoothing_takes_noise_away():
    noise = np.random.default_rng(0).standard_normal(800)
    assert smoothed(noise)[20:-20].std() < 0.4


def test_attention_by_position_is_softmax_whatever_the_size():
    weights = attention_by_position([[[0.0, np.log(3.0)], [1e30, 0.0]]])
    np.testing.assert_allclose(weights, [[[0.25, 0.75], [1.0, 0.0]]], atol=1e-12)


def width_and_height(path):
    height, width, _ = imread(path).shape
    return width, height


@pytest.mark.parametrize("shape", [(1, 1), (1, 8), (5, 20), (12, 16), (2, 3, 20)])
def test_position_matrices_of_any_number_of_heads_and_layers(shape, tmp_path):
    *panels, length = shape
    bias = np.random.default_rng(0).standard_normal((*panels, length, length))
    position_matrices(attention_by_position(bias), tmp_path / "heads.png", title="any")
    assert imread(tmp_path / "heads.png").std() > 0.05


def test_layers_are_rows_of_the_grid(tmp_path):
    even = np.full((4, 2, 8, 8), 1 / 8)
    position_matrices(even, tmp_path / "layers.png", title="four layers of two heads")
    position_matrices(even[0], tmp_path / "shared.png", title="two heads")
    (_, tall), (_, flat) = map(width_and_height, (tmp_path / "layers.png", tmp_path / "shared.png"))
    assert tall > 3 * flat


def test_a_weight_of_zero_is_drawn_as_the_darkest_colour(tmp_path):
    position_matrices(np.eye(16)[None], tmp_path / "eye.png", title="self")
    darkest, brightest = (68, 1, 84), (253, 231, 36)
    dark, bright = (pixels_of(tmp_path / "eye.png", c) for c in (darkest, brightest))
    assert dark / bright == pytest.approx(15, rel=0.3)


def test_matplotlib_is_imported_only_to_draw():
    program = "import tupe_jax.utils.plotting, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

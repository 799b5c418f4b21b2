"""Trials in one program give the results of each trial alone, on one device and on several."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from tests.finetune import side_by_side
from tests.finetune.side_by_side import PRETRAINED, TRIALS, train
from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.finetune.groups import plan_groups
from tupe_jax.finetune.results import Trial, trials_of
from tupe_jax.finetune.vmapped import make_programs, mesh_for, unit_optimizer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def together():
    return train(TRIALS)


def assert_alike(one, other):
    """To float rounding."""
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=2e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_a_trial_is_the_same_alone_and_in_a_group(number, together):
    alone = train([TRIALS[number]])
    assert_alike(alone, {name: values[number : number + 1] for name, values in together.items()})


def test_every_choice_makes_a_difference(together):
    """Trials 0 and 1 differ in their seed, 0 and 2 in their learning rate."""
    losses, outputs = together["losses"], together["outputs"]
    assert abs(losses[0, 0] - losses[2, 0]) < 1e-6, "nothing was learned yet"
    for other in (1, 2):
        assert np.abs(losses[0, 1:] - losses[other, 1:]).min() > 1e-4
        assert np.abs(outputs[0] - outputs[other]).mean() > 1e-3


@pytest.mark.slow
def test_devices_share_the_trials_and_change_nothing(together):
    """In a process with three devices."""
    environment = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": "3",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-m", side_by_side.__name__],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen.pop("devices") == 3
    assert_alike({name: np.array(values) for name, values in seen.items()}, together)


def test_the_word_head_is_left_alone_and_the_pretrained_weights_are_the_start():
    programs = make_programs(
        side_by_side.CLASSIFIER, side_by_side.OPTIMIZER, mesh_for(2, jax.devices())
    )
    state = programs.first_state(programs.choices(TRIALS[:2]), PRETRAINED)
    assert "masked_word_head" not in state.params
    for path, param in nnx.to_flat_state(state.params["encoder"]):
        np.testing.assert_array_equal(param[...], np.stack([PRETRAINED["encoder", *path]] * 2))
    head = state.params["classification_heads"]["head"]["output"]["kernel"][...]
    assert not np.array_equal(head[0], head[1])


@pytest.mark.slow
def test_the_learning_rate_of_a_trial_is_its_peak():
    """Weight decay alone moves a weight without gradient: by the share learning rate x decay."""
    config = OptimizerConfig(name="adamw", warmup="2", weight_decay=0.5, clip_norm=0)
    optimizer = unit_optimizer(config, total_steps=10, batch_size=8, sequences_per_epoch=20)
    assert config.peak_learning_rate != 1
    weights = jax.jit(side_by_side.CLASSIFIER.first_params)(0, {})
    still = jax.tree.map(np.zeros_like, weights)
    opt_state = optimizer.init(weights)
    path = ("encoder", "word_embedding")
    shares = []
    for _ in range(2):
        updates, opt_state = optimizer.update(still, opt_state, weights)
        shares.append(-updates[path[0]][path[1]][5, 0] / weights[path[0]][path[1]][5, 0])
    np.testing.assert_allclose(shares, [0.25, 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "at_once", "devices", "sizes"),
    [
        (5, 1, 1, [1] * 5),
        (5, 2, 1, [2, 2, 1]),
        (20, 160, 8, [16, 4]),
        (20, 8, 8, [8, 8, 4]),
        (3, 3, 8, [3]),
        (20, 20, 1, [20]),
    ],
)
def test_groups_fill_the_devices_evenly(count, at_once, devices, sizes, tmp_path):
    trials = trials_of([1e-3], range(count))
    groups = plan_groups(tmp_path, trials, at_once, devices)
    assert [len(group.trials) for group in groups] == sizes
    assert [trial for group in groups for trial in group.trials] == trials
    for size in sizes:
        assert mesh_for(size, jax.devices() * devices).size == min(size, devices)


def test_a_started_group_resumes_with_its_trials(tmp_path):
    trials = trials_of([1e-3], range(4))
    first, *_ = plan_groups(tmp_path, trials, at_once=3, devices=1)
    first.begin()
    again = plan_groups(tmp_path, [*trials, Trial(5e-3, 0)], at_once=1, devices=1)
    assert again[0] == first
    assert [len(group.trials) for group in again] == [3, 1, 1]
    without_one_of_them = plan_groups(tmp_path, trials[1:], at_once=1, devices=1)
    assert [len(group.trials) for group in without_one_of_them] == [1, 1, 1]

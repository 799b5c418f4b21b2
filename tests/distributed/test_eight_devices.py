"""What is trained does not depend on the mesh; each device holds its part, and no more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.on_eight_devices import MADE_ON, MESHES

pytestmark = pytest.mark.slow

ONE = "one device"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen():
    done = subprocess.run(
        [sys.executable, "-m", "tests.distributed.on_eight_devices"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "JAX_NUM_CPU_DEVICES": "8",
        },
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


several = pytest.mark.parametrize("mesh", [name for name in MESHES if name != ONE])


@several
def test_losses_are_the_same_over_ten_steps(seen, mesh):
    """Up to float32 rounding: sums over devices are taken in another order.

    One rounding is 6e-8 of a loss, 2e-7 is what is seen; other dropout or masks differ by 1e-2.
    """
    for name, tolerance in (("loss", 2e-6), ("grad_norm", 2e-5)):
        ours, theirs = ([step[name] for step in seen[m]["history"]] for m in (mesh, ONE))
        np.testing.assert_allclose(ours, theirs, rtol=tolerance)
    assert seen[mesh]["history"][-1]["loss"] < seen[mesh]["history"][0]["loss"]


@pytest.mark.parametrize("mesh", MADE_ON)
def test_the_state_at_the_start_is_the_same_bit_for_bit(seen, mesh):
    assert seen[mesh]["same_start"]


@several
@pytest.mark.parametrize("what", ["masked", "dropout"])
def test_hidden_tokens_and_dropped_units_are_the_same_bit_for_bit(seen, mesh, what):
    assert seen[mesh][what] == seen[ONE][what]


@several
def test_each_device_draws_its_part_of_the_dropout_without_communication(seen, mesh):
    """What `jax_threefry_partitionable` is for."""
    rows, length, heads = 16, 12, 4
    slices, data, fsdp, tensor = MESHES[mesh]
    rows //= slices * data * fsdp
    assert seen[mesh]["dropout_of_device"] == [
        [rows, length // tensor, 16],
        [rows, heads // tensor, length, length],
    ]
    assert not seen[mesh]["dropout_communicates"]


@several
def test_a_device_holds_the_planned_bytes(seen, mesh):
    assert seen[mesh]["bytes_per_device"] == seen[mesh]["planned_bytes_per_device"]
    _, _, fsdp, tensor = MESHES[mesh]
    # Vectors are divided by one axis only, and weigh much in so small a model.
    share = seen[mesh]["bytes_per_device"] / seen[ONE]["bytes_per_device"]
    assert 1 / (fsdp * tensor) <= share < 1.5 / (fsdp * tensor)


@pytest.mark.parametrize("mesh", MADE_ON)
def test_no_array_of_the_state_is_ever_built_unsharded(seen, mesh):
    """Not even while the initial state is made: random bits take two numbers for each weight."""
    assert seen[mesh]["largest_in_init"] <= 2 * seen[mesh]["largest_shard"]
    assert seen[mesh]["largest_array"] > 3 * seen[mesh]["largest_shard"]


def test_hidden_states_are_gathered_for_a_block_and_not_kept_whole(seen):
    """Devices that share heads keep a part of every row: [8 rows, 12 tokens, 16] of 3 tokens."""
    assert "f32[8,12,16]" in seen["1x2x4"]["gathered"]
    assert not any(name.startswith("f32[8,12") for name in seen["1x8x1"]["gathered"])


@pytest.mark.parametrize("mesh", ["2x2x2", "1x2x4", "2 slices of 1x2x2"])
def test_the_word_embedding_is_never_gathered(seen, mesh):
    """Its features are, for the logits; its words (88 of 16 features) stay where they are."""
    assert f"f32[{88 // MESHES[mesh][3]},16]" in seen[mesh]["gathered"]
    assert not any(name.startswith("f32[88,") for name in seen[mesh]["gathered"])

"""On a mesh the kernels compute what they compute alone: values, all gradients, dropout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.on_eight_devices import MESHES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen():
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.on_eight_devices"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_NUM_CPU_DEVICES": "8"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kernel", ["fused", "gpu", "banded"])
@pytest.mark.parametrize("mesh", MESHES)
def test_output_and_gradients_of_q_k_v_and_bias(seen, mesh, kernel):
    differences = seen[f"{kernel}: {mesh}"]
    assert len(differences) == 5
    assert np.max(differences) < 1e-5


def test_every_factor_of_a_long_bias_gets_its_gradient(seen):
    differences = seen["long: slices, data and tensor"]
    assert len(differences) == 4 + 4  # by distance, p_q, p_k, theta_2
    assert np.max(differences) < 1e-5

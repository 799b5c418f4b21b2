"""On a machine without a TPU, libtpu is not loaded; on one with a TPU, JAX decides as always."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from tupe_jax.utils import accelerators

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without accelerators and plugins; returns its root folder."""
    for name in ("JAX_PLATFORMS", *accelerators.TPU_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(accelerators, "_DEVICES", tmp_path / "dev")
    monkeypatch.setattr(accelerators, "_PCI_DEVICES", tmp_path / "pci")
    monkeypatch.setattr(accelerators, "find_spec", lambda name: None)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints())
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    return tmp_path


def chosen():
    accelerators.skip_absent_tpu()
    return os.environ.pop("JAX_PLATFORMS", None)


def add(file, text=""):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_without_an_accelerator_jax_uses_the_cpu(machine):
    assert chosen() == "cpu"


def test_the_users_choice_stands(machine, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    accelerators.skip_absent_tpu()
    assert os.environ["JAX_PLATFORMS"] == "tpu"


@pytest.mark.parametrize("device", ["accel0", "vfio/0"])
def test_the_device_file_of_a_tpu(machine, device):
    add(machine / "dev" / device)
    assert accelerators.has_tpu()
    assert chosen() is None


def test_a_tpu_on_the_pci_bus(machine):
    add(machine / "pci" / "0000:00:04.0" / "vendor", "0x8086\n")
    assert not accelerators.has_tpu()
    add(machine / "pci" / "0000:00:05.0" / "vendor", "0x1ae0\n")
    assert chosen() is None


def test_an_environment_that_names_a_tpu(machine, monkeypatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    assert chosen() is None


def test_a_gpu_is_used_with_its_plugin_and_reported_without(machine, monkeypatch):
    add(machine / "dev" / "nvidia0")
    assert chosen() is None, "JAX warns that it cannot use the GPU"
    monkeypatch.setattr(accelerators, "find_spec", lambda name: name == "jax_cuda12_plugin")
    assert chosen() == "cuda,cpu"


COMMAND = """
import sys
from tupe_jax import cli
from tupe_jax.commands import score

def run(arguments):
    import jax
    print(jax.devices()[0].platform)

score.run = run
sys.exit(cli.main(["score", "model", "a text"]))
"""
LOAD = """
import jax
import tupe_jax

try:
    tupe_jax.load("no such folder")
except tupe_jax.UserError:
    print(jax.devices()[0].platform)
"""


@pytest.mark.parametrize("program", [COMMAND, LOAD])
def test_jax_starts_without_a_line_on_stderr(program):
    """With libtpu installed, and without JAX_PLATFORMS."""
    hidden = ("JAX_PLATFORMS", *accelerators.TPU_VARIABLES)
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout

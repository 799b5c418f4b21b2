"""All tests run on the CPU, whatever the machine has, and compile fast rather than run fast."""

import mmap
import os
import secrets
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings


def xla_knows(flag):
    """XLA ends the process at a flag that it does not know, and has no way to ask."""
    folder = Path(find_spec("jaxlib").origin).parent
    largest = max(folder.glob("*.so"), key=lambda file: file.stat().st_size)
    with largest.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
        return code.find(flag.encode()) >= 0


# Tests start hundreds of processes. Where bytecode is switched off, each would compile all that it
# imports: with TensorFlow that takes 13 s instead of 5.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests compile much and compute little: with these, most programs compile in a quarter of the time.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if "XLA_FLAGS" not in os.environ and xla_knows("xla_cpu_use_fusion_emitters"):
    os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false"

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(scope="module")
def optimised():
    """Let the compiler optimise, for tests of what it makes and for modules that compute much."""
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def gcs():
    """An emulator of Cloud Storage that all clients of this process and its children use.

    One for all tests of a process: some clients read its address once.
    """
    from tests import gcs_emulator

    with gcs_emulator.running() as emulator:
        os.environ.update(gcs_emulator.environment(emulator.port))
        yield emulator


@pytest.fixture
def gs_folder(gcs):
    """A new folder on object storage."""
    from tupe_jax.utils.paths import storage_path

    return storage_path(f"gs://runs/{secrets.token_hex(4)}")

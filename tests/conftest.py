"""All tests run on the CPU, whatever the machine has, and compile fast rather than run fast."""

import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile much and compute little: this halves their time.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


@pytest.fixture(scope="module")
def optimised():
    """Compile as users do, for a module whose numbers should hold for them."""
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)

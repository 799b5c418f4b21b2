"""The surroundings of a user's process, without what lets tests compile fast (conftest.py)."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment():
    for_tests = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
    here = {name: value for name, value in os.environ.items() if name not in for_tests}
    return {**here, "PYTHONPATH": str(ROOT)}

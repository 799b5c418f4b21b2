"""The surroundings of a user's process, without what lets tests compile fast (conftest.py)."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
REFUSED = "http://127.0.0.1:9"
LOCAL = "localhost,127.0.0.1"
PROXIES = {"http_proxy": REFUSED, "https_proxy": REFUSED, "all_proxy": REFUSED, "no_proxy": LOCAL}
NO_DOWNLOADS = PROXIES | {name.upper(): value for name, value in PROXIES.items()}
"""Nothing answers at this proxy, so a download fails; processes of this machine still meet."""


def environment():
    for_tests = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
    here = {name: value for name, value in os.environ.items() if name not in for_tests}
    return {**here, **NO_DOWNLOADS, "PYTHONPATH": str(ROOT)}

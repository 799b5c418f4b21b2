"""What the runs of these tests share: a corpus, and compiled programs."""

import os

import jax
import pytest

from tests.training import runs


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A vocabulary and prepared rows."""
    return runs.make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session", autouse=True)
def compile_once(tmp_path_factory):
    """Keep compiled programs between runs, and between processes: most runs are of one program."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.getbasetemp().parent / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)  # for processes that tests start

"""Runs that take their programs from the work directory, and lose them, have the same numbers."""

import os

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from tests.training import runs
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.run.compilation_cache import FOLDER
from tupe_jax.training import train_state
from tupe_jax.utils.paths import glob_in

pytestmark = pytest.mark.slow
SETTING = "jax_compilation_cache_dir"
HIT = "Persistent compilation cache hit for 'jit_train_step'"


@pytest.fixture(autouse=True)
def without_the_cache_of_tests(monkeypatch):
    before = jax.config.values[SETTING]
    jax.config.update(SETTING, None)
    jax_cache.reset_cache()
    monkeypatch.delenv(SETTING.upper())
    yield
    jax.config.update(SETTING, before)


def entries(workdir):
    return list(glob_in(workdir, f"{FOLDER}/*/*-cache"))


@pytest.fixture
def hits(caplog):
    """How often a run took its train step from the cache."""
    caplog.set_level("DEBUG", logger="jax._src.compiler")
    return lambda: caplog.text.count(HIT)


def test_stopped_resumed_and_with_all_programs_damaged(corpus, tmp_path, hits):
    arguments = runs.steps_with_saves(corpus)
    calm, run = tmp_path / "calm", tmp_path / "run"
    runs.run_here([*arguments, "--config.train.compilation_cache=False"], calm)
    assert not entries(calm)

    runs.run_here(arguments, run, runs.StopAfter(6))
    assert hits() == 0
    whole = entries(run)
    runs.run_here(arguments, run, runs.StopAfter(6))
    assert hits() == 1
    for entry in entries(run):
        os.truncate(entry, entry.stat().length // 2)
    runs.run_here(arguments, run, runs.StopAfter(6))
    assert hits() == 1
    assert {entry.name for entry in whole} <= {entry.name for entry in entries(run)}
    runs.run_here(arguments, run)
    assert hits() == 2
    runs.assert_same_run(arguments, calm, run)


@pytest.mark.usefixtures("optimised")
def test_compiling_the_initial_state_faster_changes_no_bit(monkeypatch):
    config = from_config_dict(load_config("tupe_r:tiny"))

    def state():
        return train_state.plan_state(config, make_mesh(config.mesh)).create()

    fast = state()
    assert train_state._compiler_options()
    monkeypatch.setattr(train_state, "_compiler_options", lambda: None)
    equal = jax.tree.map(lambda a, b: bool((a == b).all()), fast, state())
    assert jax.tree.all(equal)

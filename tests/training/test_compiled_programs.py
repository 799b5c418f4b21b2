"""Runs that take their programs from the work directory, and lose them, have the same numbers."""

import os
import re
import signal

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
# Prints the name of each program that is not in the cache.
REPORTS_MISSES = """
import logging, re, sys
from tupe_jax.cli import main

class Report(logging.Handler):
    def emit(self, record):
        if found := re.match("PERSISTENT COMPILATION CACHE MISS for '(.*?)'", record.getMessage()):
            print("miss", found[1], flush=True)

logger = logging.getLogger("jax._src.compiler")
logger.setLevel(logging.DEBUG)
logger.propagate = False
logger.addHandler(Report())
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def without_the_cache_of_tests(monkeypatch):
    before = jax.config.values[SETTING]
    jax.config.update(SETTING, None)
    jax_cache.reset_cache()
    monkeypatch.delenv(SETTING.upper())
    yield
    jax.config.update(SETTING, before)


def entries(workdir):
    return list(glob_in(workdir, f"{FOLDER}/*/*/*-cache"))


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


def test_two_processes_resume_with_them_after_a_kill(corpus, tmp_path):
    steps = {"train.steps": 2000, "checkpoint.every": 20, "eval.every": 5}
    arguments = [*runs.settings(corpus, **steps), *runs.mesh(data=2)]

    def start(lines):
        """Two processes, killed when so many metrics are written; what they compiled."""
        processes = runs.start_many(arguments, tmp_path, 2, program=("-c", REPORTS_MISSES))
        runs.wait_for_lines(processes[0], tmp_path, lines)
        ended = runs.end_all(processes, signal.SIGKILL)
        assert [each.code for each in ended] == [-signal.SIGKILL] * 2, ended[0].err
        written = {(line["step"], "loss" in line): line for line in runs.numbers(tmp_path)}
        compiled = [set(re.findall("^miss (.*)", each.out, re.MULTILINE)) for each in ended]
        return written, compiled, ended[0].err

    before, (first, _), _ = start(60)
    assert {"jit_init", "jit_train_step", "jit_sums_of"} <= first
    (evaluation,) = (entry for entry in entries(tmp_path) if "jit_sums_of" in entry.name)
    os.truncate(evaluation, 1000)
    after, (resumed, other), log = start(len(before) + 5)
    of_restoring = {"jit__psum"}  # the first start restored nothing
    assert resumed == {"jit_sums_of", *of_restoring}
    assert evaluation.name in log
    assert "jit_train_step" in other  # on CPUs the keys of JAX differ by process
    repeated = before.keys() & after.keys()
    assert {key: before[key] for key in repeated} == {key: after[key] for key in repeated}
    assert len(repeated) == len(before)


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

"""Compiled programs in a work directory: kept, found again, and ignored where they are damaged."""

import os
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from tupe_jax.distributed.process_group import SINGLE_PROCESS
from tupe_jax.run import compilation_cache as compilation_cache_module
from tupe_jax.run.compilation_cache import FOLDER, compilation_cache, cpu_name, versions_name
from tupe_jax.utils.paths import Path, glob_in

HIT = "/jax/compilation_cache/cache_hits"
SETTING = "jax_compilation_cache_dir"


@pytest.fixture(autouse=True)
def without_the_cache_of_tests():
    before = jax.config.values[SETTING]
    jax.config.update(SETTING, None)
    jax_cache.reset_cache()
    yield
    jax.config.update(SETTING, before)


@pytest.fixture
def workdir(tmp_path):
    return Path(tmp_path)


@pytest.fixture(scope="module")
def events():
    """All events of JAX in this module."""
    seen = []
    jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
    yield seen
    jax.monitoring.clear_event_listeners()


def compiled_here(events):
    """Compile a program that this process compiled before, too; whether it was in the cache."""
    before = events.count(HIT)
    value = jax.jit(lambda x: jnp.sin(x) * 2 + 1)(jnp.float32(0.5))
    assert value == pytest.approx(1.958851)
    return events.count(HIT) == before


def folder(workdir):
    return workdir / FOLDER / versions_name() / cpu_name()


def entries(workdir):
    return sorted(glob_in(folder(workdir), "*-cache"))


@pytest.mark.parametrize("storage", ["workdir", "gs_folder"])
def test_a_program_is_compiled_once(storage, events, request):
    workdir = request.getfixturevalue(storage)
    with compilation_cache(workdir) as keep:
        assert compiled_here(events)
        keep()
        kept = entries(workdir)
        assert kept
    with compilation_cache(workdir):
        assert not compiled_here(events)
    assert entries(workdir) == kept
    assert jax.config.values[SETTING] is None


def cut(content):
    return content[: len(content) // 2]


def flipped(content):
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


@pytest.mark.parametrize("damage", [cut, flipped, lambda content: b""])
def test_a_damaged_program_is_named_compiled_and_replaced(damage, workdir, events, caplog):
    with compilation_cache(workdir):
        compiled_here(events)
    whole = {entry: entry.read_bytes() for entry in entries(workdir)}
    for entry, content in whole.items():
        entry.write_bytes(damage(content))
    with compilation_cache(workdir):
        assert compiled_here(events)
    for entry in whole:
        assert entry.name in caplog.text
    caplog.clear()
    with compilation_cache(workdir):
        assert not compiled_here(events)
    assert not caplog.records


def test_a_program_under_the_name_of_another_is_not_used(workdir, events, caplog):
    with compilation_cache(workdir):
        compiled_here(events)
        jax.jit(lambda x: jnp.cos(x) - 1)(jnp.float32(0.5))
    one, *others = entries(workdir)
    for other in others:
        other.write_bytes(one.read_bytes())
    with compilation_cache(workdir):
        compiled_here(events)  # asserts the value
    assert all(other.name in caplog.text for other in others)


def test_what_was_compiled_for_another_cpu_is_not_used(workdir, events):
    with compilation_cache(workdir):
        compiled_here(events)
    folder(workdir).rename(folder(workdir).with_name("cpu-of-another-kind"))
    with compilation_cache(workdir):
        assert compiled_here(events)


@pytest.mark.parametrize("storage", ["workdir", "gs_folder"])
def test_programs_of_other_versions_are_deleted_when_new_ones_are_kept(
    storage, events, request, caplog
):
    workdir = request.getfixturevalue(storage)
    here = folder(workdir)
    elsewhere = here.with_name("cpu-of-another-kind") / "jit_f-1-cache"
    others = [
        workdir / FOLDER / "versions-of-before" / cpu_name() / "jit_f-1-cache",
        workdir / FOLDER / "cpu-without-versions" / "jit_f-1-cache",
    ]
    for file in (elsewhere, *others):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"a program")
    with compilation_cache(workdir) as keep:
        keep()
        assert all(file.exists() for file in others)  # nothing was compiled yet
        assert compiled_here(events)
        keep()
        assert not any(file.exists() for file in others)
    assert elsewhere.exists()
    assert entries(workdir)
    ours = [record for record in caplog.records if record.name == compilation_cache_module.__name__]
    assert [record.getMessage() for record in ours] == []


def test_a_cache_of_the_user_is_used_instead(workdir, tmp_path_factory):
    own = str(tmp_path_factory.mktemp("own"))
    jax.config.update(SETTING, own)
    with compilation_cache(workdir):
        assert jax.config.values[SETTING] == own
    assert not (workdir / FOLDER).exists()


@pytest.mark.parametrize("setting", ["", "jax_enable_compilation_cache"])
def test_it_can_be_switched_off(setting, workdir, events):
    if setting:
        jax.config.update(setting, False)
    try:
        with compilation_cache(workdir, enabled=bool(setting)):
            assert compiled_here(events)
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert not (workdir / FOLDER).exists()


def test_a_folder_that_cannot_be_used_is_reported_once(workdir, events, caplog):
    (workdir / FOLDER).write_text("a file")
    with compilation_cache(workdir) as keep:
        assert compiled_here(events)
        keep()
    assert [str(workdir / FOLDER) in record.message for record in caplog.records] == [True]


class OneOfTwo:
    """A process that finds other programs than the second one."""

    index, count = 0, 2

    def gather(self, what, value):
        return [value, "another digest"]


def test_processes_that_find_different_programs_all_compile(workdir, events):
    with compilation_cache(workdir, SINGLE_PROCESS):
        compiled_here(events)
    with compilation_cache(workdir, OneOfTwo()):
        assert compiled_here(events)


def test_what_is_disabled_in_one_process_is_disabled_in_all(workdir, events):
    class OtherHasACache(OneOfTwo):
        def gather(self, what, value):
            return [value, False] if isinstance(value, bool) else super().gather(what, value)

    with compilation_cache(workdir, OtherHasACache()):
        compiled_here(events)
    assert not entries(workdir)


def test_the_oldest_programs_above_a_limit_are_deleted(workdir, events, monkeypatch):
    folder(workdir).mkdir(parents=True)
    for age, name in enumerate(("a-cache", "killed.0a1b.tmp", "b-cache"), start=1):
        (folder(workdir) / name).write_bytes(b"")
        os.utime(folder(workdir) / name, (10**9 - age, 10**9 - age))
    with compilation_cache(workdir):
        compiled_here(events)
    new = {entry.name for entry in entries(workdir)} - {"a-cache", "b-cache"}
    monkeypatch.setattr(compilation_cache_module, "_MOST_PROGRAMS", len(new) + 2)
    with compilation_cache(workdir):
        jax.jit(lambda x: jnp.cos(x) * 3)(jnp.float32(0.5))
    left = {entry.name for entry in folder(workdir).iterdir()}
    assert new <= left
    assert not left & {"b-cache", "killed.0a1b.tmp"}
    assert len(left) == len(new) + 2


def test_if_one_program_cannot_be_read_none_is_used(workdir, events, caplog):
    """Another process, which reads it, would use it."""
    with compilation_cache(workdir):
        compiled_here(events)
    (folder(workdir) / "z-cache").mkdir()
    with compilation_cache(workdir):
        assert compiled_here(events)
    assert [str(folder(workdir)) in record.message for record in caplog.records] == [True]


KILLED = """
import os, sys
from tupe_jax.run.compilation_cache import compilation_cache
from tupe_jax.utils.paths import Path

with compilation_cache(Path(sys.argv[1])):
    os._exit(0)
"""


def test_the_temporary_folder_of_a_killed_process_is_deleted_by_the_next(
    workdir, tmp_path, monkeypatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-c", KILLED, str(workdir)]
    subprocess.run(command, check=True, env=environment)
    (left,) = temporary.iterdir()
    with compilation_cache(workdir):
        (used,) = temporary.iterdir()
        assert used != left
        with compilation_cache_module._local_folder():
            assert used.exists()  # a running process has locked it
    assert not list(temporary.iterdir())

"""Whatever befalls files, disks and processes, a checkpoint is whole or refused, with a reason."""

import logging
import shutil
import signal
import socket
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.checkpointing.checkpoints import (
    VOCABULARY,
    abstract,
    assert_same_bits,
    files_of,
    flip_a_bit,
    largest,
    names,
    open_at,
    python,
    save,
    saved,
    small_state,
    truncate,
)
from tupe_jax.checkpointing.checksum import fingerprints
from tupe_jax.checkpointing.format import DamagedError, _damage_if_unreadable
from tupe_jax.utils.errors import (
    RETRY_EXIT_CODE,
    USER_ERROR_EXIT_CODE,
    RetryError,
    UserError,
)

# Orbax abandons the reads that were unfinished when another one failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


# ------------------------------------------------------------------------------------ damaged files


def test_each_checkpoint_that_is_tried_has_its_own_time_limit(tmp_path):
    folder = saved(tmp_path, [1, 2, 3])
    for step in ("2", "3"):
        truncate(folder / step / "about/about.json")
    attempts = []
    restored = open_at(folder).restore(
        abstract(small_state(0)), lambda: attempts.append(names(folder))
    )
    assert restored.step == 1
    assert len(attempts) == 3


@pytest.mark.parametrize("damage", [Path.unlink, truncate, flip_a_bit])
def test_whatever_file_is_damaged_no_wrong_number_is_restored(tmp_path, damage, caplog):
    original = saved(tmp_path / "original", [1, 2])
    fell_back = set()
    for number, name in enumerate(files_of(original / "2")):
        folder = Path(shutil.copytree(original, tmp_path / str(number)))
        if (folder / "2" / name).stat().st_size == 0:
            continue
        damage(folder / "2" / name)
        restored = open_at(folder).restore(abstract(small_state(0)))
        # Orbax keeps some files that nobody needs; the rest must be noticed.
        assert_same_bits(restored.state, small_state(restored.step))
        assert restored.data == {"next_index": 8 * restored.step}
        assert restored.vocabulary == VOCABULARY
        if restored.step == 1:
            fell_back.add(name.split("/")[0])
            assert names(folder) == ["1", "2.damaged"]
        else:
            assert names(folder) == ["1", "2"]
    assert fell_back == {"state", "about", "vocabulary"}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("about/about.json", '"next_index": 16', '"next_index": 17'),
        ("about/about.json", '"seed": 1', '"seed": 3'),
        ("vocabulary/vocabulary.json", "AAECAw", "AAECBw"),
        ("vocabulary/vocabulary.json", "base64", "base63"),
    ],
)
def test_a_file_that_can_be_read_but_was_changed_is_damaged_too(tmp_path, file, old, new):
    target = saved(tmp_path, [1, 2]) / "2" / file
    assert old in target.read_text()
    target.write_text(target.read_text().replace(old, new))
    assert open_at(tmp_path).restore(abstract(small_state(0))).step == 1


def test_metadata_that_only_orbax_reads_cannot_keep_a_run_from_starting(tmp_path):
    (saved(tmp_path, [1, 2]) / "2" / "_CHECKPOINT_METADATA").write_text('{"item_handlers": 3}')
    assert open_at(tmp_path).restore(abstract(small_state(0))).step == 2


def test_the_damaged_checkpoint_is_reported_and_its_step_is_free_again(tmp_path, caplog):
    saved(tmp_path, [1, 2, 3])
    for step in (2, 3):
        flip_a_bit(largest(tmp_path / str(step), "state"))
    checkpoints = open_at(tmp_path)
    with caplog.at_level(logging.WARNING, logger="tupe_jax"):
        assert checkpoints.restore(abstract(small_state(0))).step == 1
    ours = [record for record in caplog.records if record.name.startswith("tupe_jax")]
    assert len(ours) == 2
    assert f"{tmp_path}/3 is damaged" in ours[0].getMessage()
    assert "renamed to 3.damaged, resuming from step 1" in ours[0].getMessage()

    assert names(tmp_path) == ["1", "2.damaged", "3.damaged"]
    for step in (2, 3):
        assert save(checkpoints, step)
    checkpoints.close()
    assert open_at(tmp_path).restore(abstract(small_state(0))).step == 3
    # A second accident at the same step does not overwrite the first.
    truncate(largest(tmp_path / "3", "state"))
    assert open_at(tmp_path).restore(abstract(small_state(0))).step == 2
    assert names(tmp_path) == ["1", "2", "2.damaged", "3.damaged", "3.damaged-2"]


def test_trouble_of_the_storage_is_not_taken_for_damage(tmp_path):
    saved(tmp_path, [1])
    checkpoints = open_at(tmp_path)
    file = tmp_path / "1" / "about" / "about.json"
    file.unlink()
    file.mkdir()  # the nearest thing to an unreadable file when tests run as root
    with pytest.raises(RetryError, match=r"/1: IsADirectoryError"):
        checkpoints.restore(abstract(small_state(0)))
    assert names(tmp_path) == ["1"]


@pytest.mark.parametrize(("code", "error"), [(5, RetryError), (2, DamagedError)])
def test_the_error_code_of_the_system_decides(code, error):
    """A mounted bucket answers trouble of the network with EIO, which tensorstore does not know."""
    said = f"UNKNOWN: Error reading \"d/0\": [OS error {code}] [os_error_code='{code}']"
    with pytest.raises(error), _damage_if_unreadable("runs/checkpoints/3"):
        raise ValueError("x" * 400) from ValueError(said)


@pytest.mark.slow
def test_two_processes_fall_back_together_when_only_one_of_them_sees_the_damage(tmp_path):
    run = """
        from tupe_jax.checkpointing.manager import Checkpoints
        from tupe_jax.config.schema import CheckpointConfig
        from tupe_jax.distributed.initialize import ProcessInfo, join, start_jax
        folder, process, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
        info = ProcessInfo(f"localhost:{port}", 2, process)
        processes = join(info, 60.0, 60.0)
        start_jax(info, 180)
        mesh = jax.make_mesh((2,), ("data",))
        shardings = {"w": NamedSharding(mesh, P("data")), "step": NamedSharding(mesh, P())}
        state_at = jax.jit(small_state, static_argnums=0, out_shardings=shardings)
        checkpoints = Checkpoints(folder, CheckpointConfig(every=1), processes)
        for step in (1, 2):
            save(checkpoints, step, state_at(step))
        checkpoints.wait()
        if process == 1:
            for file in (Path(folder) / "2" / "state" / "ocdbt.process_1").rglob("d/*"):
                truncate(file)
        processes.gather("damaged", None)
        restored = checkpoints.restore(
            jax.tree.map(
                lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
                abstract(small_state(0)),
                shardings,
            )
        )
        (part,) = restored.state["w"].addressable_shards
        np.testing.assert_array_equal(part.data, np.asarray(small_state(1)["w"])[part.index])
        assert save(checkpoints, 2, state_at(2))
        checkpoints.close()
        print("from", restored.step, flush=True)
        processes.gather("done", None)
        os._exit(0)  # without waiting for JAX's shutdown
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    with python(run, tmp_path, 0, port) as one, python(run, tmp_path, 1, port) as other:
        for process in (one, other):
            output, errors = process.communicate(timeout=60)
            assert output.endswith("from 1\n"), errors
    assert names(tmp_path) == ["1", "2", "2.damaged"]


def test_if_all_are_damaged_the_run_does_not_start_from_the_beginning(tmp_path):
    saved(tmp_path, [1, 2])
    for step in (1, 2):
        flip_a_bit(largest(tmp_path / str(step), "state"))
    for _ in range(2):
        with pytest.raises(UserError, match=r"2 checkpoints .*damaged"):
            open_at(tmp_path).restore(abstract(small_state(0)))
    assert names(tmp_path) == ["1", "2"]


def test_a_fingerprint_depends_on_every_bit_and_every_index():
    x = jax.random.normal(jax.random.key(0), (7, 9))
    (mark,) = fingerprints({"x": x}).values()
    bits = np.asarray(x).view(np.uint32)
    rng = np.random.default_rng(0)
    for row, column, bit in zip(
        rng.integers(0, 7, 64), rng.integers(0, 9, 64), [*range(32)] * 2, strict=True
    ):
        other = bits.copy()
        other[row, column] ^= np.uint32(1 << bit)
        assert fingerprints({"x": other.view(np.float32)})["x"] != mark
    assert fingerprints({"x": x[::-1]})["x"] != mark
    assert fingerprints({"x": x.T.reshape(7, 9)})["x"] != mark
    zeros = {dtype: jnp.zeros(3, dtype) for dtype in ("bool", "int8", "bfloat16", "float32")}
    ones = {dtype: jnp.array([0, 1, 0], dtype) for dtype in zeros}
    before, after = fingerprints(zeros), fingerprints(ones)
    assert all(before[dtype] != after[dtype] for dtype in zeros)


# ------------------------------------------------------------------------- killed, full, in the way


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_whole_checkpoints(tmp_path):
    """SIGKILL at random moments of back-to-back saves; each process resumes from the last one."""
    run = """
        checkpoints = open_at(sys.argv[1], keep=2)
        restored = checkpoints.restore(abstract(small_state(0, 200_000)))
        step = restored.step if restored else 0
        print("from", step, flush=True)
        while True:
            step += 1
            save(checkpoints, step, small_state(step, 200_000))
            print("saved", step, flush=True)
    """
    rng = np.random.default_rng(0)
    reached, leftovers = 0, 0
    for _ in range(4):
        with python(run, tmp_path) as process:
            start = int(process.stdout.readline().split()[1])
            assert start >= reached
            reached = start
            assert process.stdout.readline()  # however busy the machine is, one save is made
            time.sleep(rng.uniform(0.2, 0.8))
            process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
        assert "damaged" not in errors
        leftovers += any("tmp" in name for name in names(tmp_path))
    assert reached > 0
    assert leftovers > 0, "no kill hit a save: the test shows nothing"

    checkpoints = open_at(tmp_path, keep=2)
    restored = checkpoints.restore(abstract(small_state(0, 200_000)))
    assert_same_bits(restored.state, small_state(restored.step, 200_000))
    assert restored.step >= reached
    assert not any("damaged" in name for name in names(tmp_path))
    save(checkpoints, restored.step + 5)
    checkpoints.close()
    assert names(tmp_path) == sorted([str(restored.step), str(restored.step + 5)])


def test_leftovers_of_a_killed_save_are_ignored_and_removed(tmp_path):
    saved(tmp_path, [1])
    shutil.copytree(tmp_path / "1", tmp_path / "2.orbax-checkpoint-tmp")
    truncate(largest(tmp_path / "2.orbax-checkpoint-tmp", "state"))
    checkpoints = open_at(tmp_path)
    assert checkpoints.restore(abstract(small_state(0))).step == 1
    save(checkpoints, 5)
    checkpoints.close()
    assert names(tmp_path) == ["1", "5"]


@pytest.mark.slow
def test_a_full_disk_is_reported_at_the_next_call_and_nothing_is_lost(tmp_path):
    run = """
        checkpoints = open_at(sys.argv[1])
        save(checkpoints, 1, {"w": jnp.zeros(10)})
        checkpoints.wait()
        # Files that may not grow are the nearest thing to a full disk that needs no privileges.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        noise = {"w": jax.random.normal(jax.random.key(0), (100_000,))}
        save(checkpoints, 2, noise)
        for step in range(3, 1000):
            try:
                checkpoints.due(step)
            except UserError as error:
                print(error.exit_code, error)
                break
            time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        save(checkpoints, 3, noise)
        checkpoints.close()
    """
    with python(run, tmp_path) as process:
        message, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert message.startswith(f"{RETRY_EXIT_CODE} cannot save checkpoints in {tmp_path}")
    assert "File too large" in message
    assert {"1", "3"} <= set(names(tmp_path))
    assert "2" not in names(tmp_path)


def test_a_checkpoint_whose_folder_cannot_be_created_is_reported_by_save_itself(tmp_path):
    """Not in the background: the threads that wait for the folder would not notice."""
    checkpoints = open_at(tmp_path / "checkpoints")
    (tmp_path / "checkpoints").rmdir()
    (tmp_path / "checkpoints").touch()
    with pytest.raises(UserError, match="Not a directory"):
        save(checkpoints, 1)


def test_a_file_where_the_folder_should_be_is_reported_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=f"{folder}: ") as error:
            open_at(folder)
        assert error.value.exit_code == USER_ERROR_EXIT_CODE  # trying again would not help

"""A checkpoint is whole or refused, comes back bit for bit anywhere, and is never lost in silence.

Runs that must die, run out of space or have eight devices are processes of their own: they import
this file.
"""

import dataclasses
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from tests.model.helpers import small_config
from tupe_jax.config import CheckpointConfig
from tupe_jax.errors import UserError
from tupe_jax.interop.arrays import model_from
from tupe_jax.model.heads import MaskedLM
from tupe_jax.training.checkpoint import Checkpoints, load_for_use
from tupe_jax.training.fingerprint import fingerprints

# Orbax abandons the reads that were still under way when another one failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

CONFIG = {"model": {"num_layers": 3}, "seed": 1, "optimizer": {"warmup": "10%"}, "keep_steps": (1,)}
VOCABULARY = bytes(range(256))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    step: jax.Array
    params: Any
    opt_state: Any
    ema: Any


def model_state(ema=False, seed=0, **settings):
    """The state of a real model and a real optimizer, filled with numbers of all kinds."""

    def build():
        params = nnx.state(MaskedLM(small_config(**settings), rngs=nnx.Rngs(0)), nnx.Param)
        optimizer = optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.adamw(optax.linear_schedule(1e-3, 0.0, 10), mu_dtype=jnp.bfloat16),
        )
        return State(jnp.int32(0), params, optimizer.init(params), params if ema else None)

    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray((100 * rng.standard_normal(leaf.shape)).astype(leaf.dtype)),
        jax.eval_shape(build),
    )


def small_state(step, size=1000):
    """Every number says which step it is of."""
    return {"step": jnp.int32(step), "w": jnp.full((size,), step, jnp.float32) + jnp.arange(size)}


def abstract(tree):
    return jax.eval_shape(lambda: tree)


def assert_same_bits(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def open_at(folder, **settings):
    return Checkpoints(folder, CheckpointConfig(**{"every": 1, **settings}))


def save(checkpoints, step, state=None, **more):
    state = small_state(step) if state is None else state
    return checkpoints.save(
        step, state, data={"next_index": step * 8}, config=CONFIG, vocabulary=VOCABULARY, **more
    )


def saved(folder, steps, **settings):
    """A folder with small checkpoints."""
    checkpoints = open_at(folder, **{"keep": 10, **settings})
    for step in steps:
        save(checkpoints, step)
    checkpoints.close()
    return folder


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def run_python(code, *arguments, **environment):
    """A process that has imported everything of this file."""
    code = "from tests.training.test_checkpoint import *\n" + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )


# --------------------------------------------------------------------------------- save and restore


@pytest.mark.parametrize("ema", [False, True])
def test_everything_comes_back_bit_for_bit(tmp_path, ema):
    state = model_state(ema=ema)
    dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(state)}
    assert dtypes == {"float32", "bfloat16", "int32"}
    with_first = open_at(tmp_path)
    assert save(with_first, 7, state)
    with_first.close()

    restored = open_at(tmp_path).restore(abstract(state))
    assert_same_bits(restored.state, state)
    assert (restored.step, restored.data) == (7, {"next_index": 56})
    assert restored.config == json.loads(json.dumps(CONFIG))
    assert restored.vocabulary == VOCABULARY


def test_nan_infinity_and_signed_zero_keep_their_bits(tmp_path):
    bits = np.array([0x7FC00001, 0xFFC12345, 0x7F800000, 0x80000000, 1], np.uint32)
    state = {"x": jnp.asarray(bits.view(np.float32)), "flag": jnp.array([True, False])}
    checkpoints = open_at(tmp_path)
    save(checkpoints, 1, state)
    assert_same_bits(checkpoints.restore(abstract(state)).state, state)


def test_a_new_folder_has_nothing_to_restore(tmp_path):
    checkpoints = open_at(tmp_path / "not" / "there" / "yet")
    assert checkpoints.restore(abstract(small_state(0))) is None
    assert checkpoints.latest() is None
    assert checkpoints.peek_config() is None


def test_the_state_may_be_donated_as_soon_as_save_returns(tmp_path):
    step = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    state = {f"w{i}": jnp.full((256, 256), 1.0) for i in range(20)}
    checkpoints = open_at(tmp_path)
    save(checkpoints, 1, state)
    for _ in range(50):
        state = step(state)
    jax.block_until_ready(state)
    # The fingerprints were taken before; restore would refuse what was overwritten meanwhile.
    restored = checkpoints.restore(abstract(state)).state
    assert all((np.asarray(w) == 1.0).all() for w in restored.values())


def test_a_state_is_restored_onto_other_devices(tmp_path):
    state = {"w": jnp.arange(64.0).reshape(16, 4), "count": jnp.int32(5)}
    checkpoints = open_at(tmp_path / "one")
    save(checkpoints, 1, state)
    checkpoints.close()
    process = run_python(
        """
        from jax.sharding import NamedSharding, PartitionSpec as P
        one, eight = sys.argv[1:]
        mesh = jax.make_mesh((4, 2), ("data", "tensor"))
        split, everywhere = (NamedSharding(mesh, P(*axes)) for axes in (("data", "tensor"), ()))
        wanted = {
            "w": jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=split),
            "count": jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere),
        }
        state = open_at(one).restore(wanted).state
        assert jax.tree.map(lambda x: x.sharding, state) == {"w": split, "count": everywhere}
        assert [shard.data.shape for shard in state["w"].addressable_shards] == [(4, 2)] * 8
        assert (np.asarray(state["w"]) == np.arange(64).reshape(16, 4)).all()
        checkpoints = open_at(eight)
        save(checkpoints, 2, state)
        checkpoints.close()
        """,
        tmp_path / "one",
        tmp_path / "eight",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert_same_bits(open_at(tmp_path / "eight").restore(abstract(state)).state, state)


# ------------------------------------------------------------------------------------ what is kept


def test_the_newest_the_listed_and_the_best_are_kept(tmp_path):
    losses = {1: 5.0, 2: 3.0, 3: 4.0, 4: None, 5: float("nan"), 6: 3.5, 7: 9.0, 8: 9.0}
    checkpoints = open_at(tmp_path, keep=2, keep_steps=(4,))
    for step in (1, 2, 3, 4):
        save(checkpoints, step, valid_loss=losses[step])
    checkpoints.close()
    # The rule outlives the process.
    checkpoints = open_at(tmp_path, keep=2, keep_steps=(4,))
    for step in (5, 6, 7, 8):
        save(checkpoints, step, valid_loss=losses[step])
    checkpoints.close()
    assert names(tmp_path) == ["2", "4", "7", "8"]


def test_without_keep_best_the_best_goes_too(tmp_path):
    checkpoints = open_at(tmp_path, keep=1, keep_best=False)
    for step, loss in ((1, 1.0), (2, 2.0), (3, 3.0)):
        save(checkpoints, step, valid_loss=loss)
    checkpoints.close()
    assert names(tmp_path) == ["3"]


def test_only_steps_that_are_due_are_saved_unless_forced(tmp_path):
    checkpoints = open_at(tmp_path, every=10, keep_steps=(13,))
    assert [step for step in range(1, 21) if checkpoints.due(step)] == [10, 13, 20]
    assert not save(checkpoints, 9)
    assert save(checkpoints, 10)
    assert save(checkpoints, 12, force=True)
    assert not save(checkpoints, 12, force=True)
    assert save(checkpoints, 13)
    assert checkpoints.latest() == 13
    assert names(tmp_path) == ["10", "12", "13"]


# ------------------------------------------------------------------------------- strict restoring


def changed(state, **changes):
    return {name: leaf for name, leaf in {**state, **changes}.items() if leaf is not None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"w": jnp.zeros(999)}, ["w is [1000] float32 there, [999] float32 in this run"]),
        ({"w": jnp.zeros(1000, jnp.bfloat16)}, ["w is [1000] float32", "[1000] bfloat16"]),
        ({"w": None}, ["w is [1000] float32 there, absent"]),
        ({"more": jnp.zeros((2, 3))}, ["more is absent there, [2, 3] float32"]),
        ({"w": None, "u": jnp.zeros(1)}, ["(and 1 more differ)"]),
    ],
)
def test_another_model_is_an_error_and_no_reason_to_fall_back(tmp_path, changes, words):
    saved(tmp_path, [1, 2])
    wanted = abstract(changed(small_state(0), **changes))
    with pytest.raises(UserError) as error:
        open_at(tmp_path).restore(wanted)
    for word in [str(tmp_path / "2"), *words]:
        assert word in str(error.value)
    assert names(tmp_path) == ["1", "2"]


def test_a_model_of_another_size_is_named_by_its_first_array(tmp_path):
    checkpoints = open_at(tmp_path)
    save(checkpoints, 1, model_state())
    with pytest.raises(
        UserError, match=r"params\.encoder\.\S+ is \[.*\] .* there, \[.*\] .* in th"
    ):
        checkpoints.restore(abstract(model_state(hidden_size=32)))
    with pytest.raises(UserError, match=r"ema\.encoder\.\S+ is absent there"):
        checkpoints.restore(abstract(model_state(ema=True)))


# ------------------------------------------------------------------------------------------ damage


def truncate(file):
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def files_of(directory):
    return sorted(str(f.relative_to(directory)) for f in directory.rglob("*") if f.is_file())


def largest(directory, item):
    files = [file for file in (directory / item).rglob("*") if file.is_file()]
    return max(files, key=lambda file: file.stat().st_size)


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


def test_the_damaged_checkpoint_is_told_of_and_its_step_is_free_again(tmp_path, caplog):
    saved(tmp_path, [1, 2, 3])
    for step in (2, 3):
        flip_a_bit(largest(tmp_path / str(step), "state"))
    checkpoints = open_at(tmp_path)
    with caplog.at_level(logging.WARNING, logger="tupe_jax"):
        assert checkpoints.restore(abstract(small_state(0))).step == 1
    ours = [record for record in caplog.records if record.name.startswith("tupe_jax")]
    assert len(ours) == 2
    assert f"{tmp_path}/3 is damaged" in ours[0].getMessage()
    assert "renamed to 3.damaged, going on from step 1" in ours[0].getMessage()

    assert names(tmp_path) == ["1", "2.damaged", "3.damaged"]
    for step in (2, 3):
        assert save(checkpoints, step)
    checkpoints.close()
    assert open_at(tmp_path).restore(abstract(small_state(0))).step == 3
    # A second accident at the same step does not overwrite the first.
    truncate(largest(tmp_path / "3", "state"))
    assert open_at(tmp_path).restore(abstract(small_state(0))).step == 2
    assert names(tmp_path) == ["1", "2", "2.damaged", "3.damaged", "3.damaged-2"]


def test_if_all_are_damaged_the_run_does_not_start_from_the_beginning(tmp_path):
    saved(tmp_path, [1, 2])
    for step in (1, 2):
        flip_a_bit(largest(tmp_path / str(step), "state"))
    for _ in range(2):
        with pytest.raises(UserError, match=r"all 2 checkpoints in .* 2 is damaged"):
            open_at(tmp_path).restore(abstract(small_state(0)))
    assert names(tmp_path) == ["1", "2"]


def test_a_fingerprint_sees_every_bit_and_every_place():
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


def test_a_kill_at_any_moment_leaves_whole_checkpoints(tmp_path):
    """SIGKILL at random moments of back-to-back saves; each process goes on from the last."""
    run = """
        checkpoints = open_at(sys.argv[1], keep=2)
        restored = checkpoints.restore(abstract(small_state(0, 200_000)))
        step = restored.step if restored else 0
        print("from", step, flush=True)
        while True:
            step += 1
            save(checkpoints, step, small_state(step, 200_000))
    """
    rng = np.random.default_rng(0)
    reached, leftovers = 0, 0
    for _ in range(4):
        process = run_python(run, tmp_path)
        start = int(process.stdout.readline().split()[1])
        assert start >= reached
        reached = start
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
    assert checkpoints.latest() == 1
    assert checkpoints.restore(abstract(small_state(0))).step == 1
    save(checkpoints, 5)
    checkpoints.close()
    assert names(tmp_path) == ["1", "5"]


def test_a_full_disk_is_told_at_the_next_call_and_nothing_is_lost(tmp_path):
    process = run_python(
        """
        import resource
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
                print(error)
                break
            time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        save(checkpoints, 3, noise)
        checkpoints.close()
        """,
        tmp_path,
    )
    message, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert f"cannot save checkpoints in {tmp_path}" in message
    assert "File too large" in message
    assert {"1", "3"} <= set(names(tmp_path))
    assert "2" not in names(tmp_path)


def test_a_file_where_the_folder_should_be_is_told_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=f"cannot save checkpoints in {folder}: .*; make room"):
            open_at(folder)


# ----------------------------------------------------------------------------------- without a run


def test_a_directory_alone_is_enough_to_use_the_model(tmp_path):
    state = model_state()
    checkpoints = open_at(tmp_path / "checkpoints")
    save(checkpoints, 3, state)
    checkpoints.close()
    step_directory = Path(shutil.move(tmp_path / "checkpoints" / "3", tmp_path / "given_away"))
    loaded = load_for_use(step_directory)
    assert (loaded.step, loaded.vocabulary) == (3, VOCABULARY)
    assert loaded.config == json.loads(json.dumps(CONFIG))
    assert all(type(array) is np.ndarray for array in loaded.params.values())
    model = model_from(small_config(), {}, lambda shapes: loaded.params)
    assert_same_bits(nnx.state(model, nnx.Param), state.params)


def test_a_work_directory_gives_its_newest_whole_model_averaged_if_it_was(tmp_path):
    state = model_state(ema=True)
    checkpoints = open_at(tmp_path / "checkpoints")
    save(checkpoints, 1, state)
    save(checkpoints, 2, dataclasses.replace(state, step=jnp.int32(2)))
    checkpoints.close()
    for file in (tmp_path / "checkpoints" / "2" / "state").rglob("d/*"):
        truncate(file)
    for path in (tmp_path, tmp_path / "checkpoints"):
        loaded = load_for_use(path)
        assert loaded.step == 1
        model = model_from(small_config(), {}, lambda shapes, params=loaded.params: params)
        assert_same_bits(nnx.state(model, nnx.Param), state.ema)
    assert names(tmp_path / "checkpoints") == ["1", "2"]
    with pytest.raises(UserError, match=r"the only checkpoint .* is damaged"):
        load_for_use(tmp_path / "checkpoints" / "2")
    with pytest.raises(UserError, match="not a checkpoint"):
        load_for_use(tmp_path / "nowhere")


def test_the_config_can_be_seen_without_the_arrays(tmp_path):
    saved(tmp_path, [1, 2])
    shutil.rmtree(tmp_path / "2" / "state")
    assert open_at(tmp_path).peek_config() == json.loads(json.dumps(CONFIG))
    shutil.rmtree(tmp_path / "2" / "about")
    assert open_at(tmp_path).peek_config() == json.loads(json.dumps(CONFIG))

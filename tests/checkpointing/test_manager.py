"""What is saved comes back bit for bit, on any devices, and only into the model it is of."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.checkpointing.checkpoints import (
    CONFIG,
    VOCABULARY,
    abstract,
    assert_same_bits,
    model_state,
    names,
    open_at,
    python,
    save,
    saved,
    small_state,
    truncate,
)
from tests.model.helpers import small_config
from tupe_jax.checkpointing.manager import load_for_use
from tupe_jax.model.params import model_from
from tupe_jax.utils.errors import UserError

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


@pytest.mark.slow
def test_a_state_is_restored_onto_other_devices(tmp_path):
    state = {"w": jnp.arange(64.0).reshape(16, 4), "count": jnp.int32(5)}
    checkpoints = open_at(tmp_path / "one")
    save(checkpoints, 1, state)
    checkpoints.close()
    run = """
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
    """
    folders = tmp_path / "one", tmp_path / "eight"
    with python(run, *folders, JAX_NUM_CPU_DEVICES="8") as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert_same_bits(open_at(tmp_path / "eight").restore(abstract(state)).state, state)


# ------------------------------------------------------------------------------------- what is kept


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
    checkpoints.wait()
    assert names(tmp_path) == ["10", "12", "13"]


# --------------------------------------------------------------------------------- strict restoring


def shaped(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def changed(state, **changes):
    return {name: leaf for name, leaf in {**state, **changes}.items() if leaf is not None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"w": shaped(999)}, ["w is [1000] float32 there, but [999] float32 in this run"]),
        ({"w": shaped(1000, dtype=jnp.bfloat16)}, ["w is [1000] float32", "[1000] bfloat16"]),
        ({"w": None}, ["w is [1000] float32 there, but absent"]),
        ({"more": shaped(2, 3)}, ["more is absent there, but [2, 3] float32"]),
        ({"w": None, "u": shaped(1)}, ["(and 1 more differ)"]),
    ],
)
def test_another_model_is_an_error_and_no_reason_to_fall_back(tmp_path, changes, words):
    saved(tmp_path, [1, 2])
    wanted = changed(abstract(small_state(0)), **changes)
    with pytest.raises(UserError) as error:
        open_at(tmp_path).restore(wanted)
    for word in [str(tmp_path / "2"), *words]:
        assert word in str(error.value)
    assert names(tmp_path) == ["1", "2"]


def test_a_model_of_another_size_is_named_by_its_first_array(tmp_path):
    checkpoints = open_at(tmp_path)
    save(checkpoints, 1, model_state())
    with pytest.raises(UserError, match=r"params\.encoder\.\S+ .*\[.*\] .*\[.*\]"):
        checkpoints.restore(abstract(model_state(hidden_size=32)))
    with pytest.raises(UserError, match=r"ema\.encoder\.\S+"):
        checkpoints.restore(abstract(model_state(ema=True)))


# ------------------------------------------------------------------------------------ without a run


def test_a_directory_alone_is_enough_to_use_the_model(tmp_path):
    state = model_state()
    checkpoints = open_at(tmp_path / "checkpoints")
    save(checkpoints, 3, state)
    checkpoints.close()
    step_directory = Path(shutil.move(tmp_path / "checkpoints" / "3", tmp_path / "given_away"))
    about, vocabulary, params = load_for_use(step_directory)
    assert (about.step, vocabulary) == (3, VOCABULARY)
    assert about.config == json.loads(json.dumps(CONFIG))
    assert all(type(array) is np.ndarray for array in params.values())
    model = model_from(small_config(), params)
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
        about, _, params = load_for_use(path)
        assert about.step == 1
        model = model_from(small_config(), params)
        assert_same_bits(nnx.state(model, nnx.Param), state.ema)
    assert names(tmp_path / "checkpoints") == ["1", "2"]
    with pytest.raises(UserError, match=r"checkpoint .*damaged"):
        load_for_use(tmp_path / "checkpoints" / "2")
    with pytest.raises(UserError, match=r"model\.safetensors and config\.json"):
        load_for_use(tmp_path / "nowhere")


def test_the_config_can_be_seen_without_the_arrays(tmp_path):
    saved(tmp_path, [1, 2])
    shutil.rmtree(tmp_path / "2" / "state")
    assert open_at(tmp_path).peek_config() == json.loads(json.dumps(CONFIG))
    shutil.rmtree(tmp_path / "2" / "about")
    assert open_at(tmp_path).peek_config() == json.loads(json.dumps(CONFIG))

"""A model folder keeps the model bit for bit; a damaged one is refused."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.model.helpers import VARIANTS, save_folder, small_config, spread_model
from tupe_jax.interop.model_folder import read_folder
from tupe_jax.model.params import arrays_of
from tupe_jax.utils.errors import UserError


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_encoding_survives_bit_for_bit(variant, tmp_path):
    model = spread_model(small_config(variant), heads={"cola": 2})
    save_folder(model, tmp_path / "m")
    config, theirs, _, _ = read_folder(tmp_path / "m")
    assert config == model.config
    ours = arrays_of(model)
    assert ours.keys() == theirs.keys()
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path])


@pytest.fixture
def saved(tmp_path):
    save_folder(spread_model(small_config()), tmp_path / "m")
    return tmp_path / "m"


def change_weights(folder, change):
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    change(arrays)
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")


def change_settings(folder, change):
    settings = json.loads((folder / "config.json").read_text())
    change(settings)
    (folder / "config.json").write_text(json.dumps(settings))


def truncate(file):
    file.write_bytes(file.read_bytes()[:500])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda f: change_weights(f, lambda a: a.pop("masked_word_head.bias")),
            ["head.bias", "absent"],
        ),
        (lambda f: change_weights(f, lambda a: a.update(x=np.zeros(2))), ["x is [2]", "absent"]),
        (
            lambda f: change_weights(f, lambda a: a.update({"masked_word_head.bias": np.zeros(7)})),
            ["masked_word_head.bias", "[7]", "[50]"],
        ),
        (lambda f: truncate(f / "model.safetensors"), ["model.safetensors is damaged"]),
        (lambda f: (f / "model.safetensors").unlink(), ["no model.safetensors"]),
        (lambda f: (f / "config.json").write_text("{\n,"), ["config.json", "line 2"]),
        (lambda f: (f / "config.json").write_text("[1]"), ["config.json", "lacks 'model'"]),
        (lambda f: change_settings(f, lambda s: s.pop("model")), ["config.json", "lacks 'model'"]),
        (lambda f: change_settings(f, lambda s: s.update(format=9)), ["format 9", "reads 1"]),
        (
            lambda f: change_settings(f, lambda s: s["model"].update(depth=3)),
            ["config.json", "no setting 'depth'"],
        ),
    ],
)
def test_a_damaged_folder_is_refused_by_name(saved, damage, words):
    damage(saved)
    with pytest.raises(UserError) as error:
        read_folder(saved)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_half_precision_is_read_as_float32_of_the_same_values(saved, dtype):
    _, before, _, _ = read_folder(saved)
    change_weights(saved, lambda a: a.update({k: v.astype(dtype) for k, v in a.items()}))
    _, after, _, _ = read_folder(saved)
    assert {array.dtype for array in after.values()} == {np.dtype(np.float32)}
    for path, array in before.items():
        np.testing.assert_array_equal(after[path], array.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_arrays_of_other_types_are_refused_by_name(saved, dtype):
    name = "masked_word_head.bias"
    change_weights(saved, lambda a: a.update({name: a[name].astype(dtype)}))
    with pytest.raises(UserError) as error:
        read_folder(saved)
    assert name in str(error.value)
    assert np.dtype(dtype).name in str(error.value)


def test_nothing_is_overwritten_and_nothing_is_left_behind(saved):
    with pytest.raises(UserError, match=saved.name):
        save_folder(spread_model(small_config()), saved)
    assert [p.name for p in saved.parent.iterdir()] == ["m"]

"""Models are loaded from every kind of path; anything else is a one-line error."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.finetune import tuning
from tests.model.helpers import save_folder, small_config, spread_model
from tupe_jax.data.pretraining.train_tokenizer import train_tokenizer
from tupe_jax.inference.loading import load
from tupe_jax.model.params import arrays_of
from tupe_jax.utils.errors import UserError


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    file = tmp_path_factory.mktemp("vocabulary") / "v.model"
    return train_tokenizer("builtin:100", file, size=tuning.PIECES, cleaning=(), seed=0)


@pytest.fixture(scope="module")
def model():
    return spread_model(tuning.MODEL, heads={"cola": 2})


def saved(model, folder, vocabulary=None):
    save_folder(model, folder, vocabulary and vocabulary.path.read_bytes())
    return folder


def assert_same(loaded, model):
    theirs, ours = arrays_of(loaded.module), arrays_of(model)
    assert theirs.keys() == ours.keys()
    for path in ours:
        np.testing.assert_array_equal(theirs[path], ours[path])


def test_a_model_folder_with_a_head_and_a_tokenizer(model, vocabulary, tmp_path):
    loaded = load(saved(model, tmp_path / "m", vocabulary))
    assert_same(loaded, model)
    assert loaded.classification_heads == {"cola": 2}
    assert loaded.tokenizer.encode("the boat") == vocabulary.encode("the boat")


def test_a_folder_without_a_tokenizer_needs_one_for_texts(model, vocabulary, tmp_path):
    folder = saved(model, tmp_path / "m")
    bare = load(folder)
    assert_same(bare, model)
    with pytest.raises(UserError, match=r"/m .*--vocabulary="):
        _ = bare.tokenizer
    assert_same(load(folder, vocabulary.path), model)


def test_a_second_tokenizer_is_refused(model, vocabulary, tmp_path):
    folder = saved(model, tmp_path / "m", vocabulary)
    with pytest.raises(UserError, match="--vocabulary="):
        load(folder, vocabulary.path)


def test_a_tokenizer_of_another_size_is_refused(vocabulary, tmp_path):
    larger = spread_model(dataclasses.replace(tuning.MODEL, vocab_size=301))
    with pytest.raises(UserError, match=r"300 .*301"):
        load(saved(larger, tmp_path / "m", vocabulary))


def test_a_model_that_pads_with_another_token_is_refused(vocabulary, tmp_path):
    other = spread_model(small_config(vocab_size=tuning.PIECES, pad_id=1))
    with pytest.raises(UserError, match=r"1, .*\[PAD\] .*0"):
        load(saved(other, tmp_path / "m", vocabulary))


def test_the_only_trial_of_a_fine_tuning_run_is_found_but_several_are_refused(
    model, vocabulary, tmp_path
):
    folder = saved(model, tmp_path / "lr0.1-seed0" / "model", vocabulary)
    for path in (tmp_path, folder.parent, folder):
        assert_same(load(path), model)
    shutil.copytree(folder.parent, tmp_path / "lr0.1-seed1")
    with pytest.raises(UserError, match=r"lr0\.1-seed0, lr0\.1-seed1"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone", "/gone: "),
        ("", r"model\.safetensors and config\.json"),
        (
            "released/checkpoint.pt",
            "`tupe import-fairseq .*/checkpoint.pt FOLDER`",
        ),
        ("released", "released/checkpoint.pt .*`tupe import-fairseq"),
        ("released/model.safetensors", "model.safetensors .*folder"),
    ],
)
def test_paths_without_a_model_are_refused(name, words, tmp_path):
    (tmp_path / "released").mkdir()
    (tmp_path / "released/checkpoint.pt").touch()
    if name.endswith(".safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=words):
        load(tmp_path / name)


def test_an_empty_path_is_refused():
    with pytest.raises(UserError, match="an empty path"):
        load("")


def test_a_path_may_begin_at_home(model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    saved(model, tmp_path / "m")
    assert_same(load("~/m"), model)


def test_weights_have_a_fingerprint(model, vocabulary, tmp_path):
    folder = saved(model, tmp_path / "m", vocabulary)
    other = saved(spread_model(tuning.MODEL, seed=1, heads={"cola": 2}), tmp_path / "o", vocabulary)
    mark = load(folder).fingerprint
    assert mark == load(folder).fingerprint != load(other).fingerprint
    assert json.dumps(mark)

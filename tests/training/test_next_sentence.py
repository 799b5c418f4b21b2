"""Runs of masked LM with next sentences: killed, on several devices, loaded and fine-tuned."""

import dataclasses

import numpy as np
import pytest

from tests.training import runs
from tupe_jax import cli
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.prepare import prepare
from tupe_jax.inference.loading import load
from tupe_jax.inference.model_card import save_model
from tupe_jax.utils.errors import UserError

PAIRS = {"objective.name": "masked_lm_nsp", "data.packing": "pairs", "model.segments": 2}
LENGTH = 24


@pytest.fixture(scope="module")
def pairs(corpus, tmp_path_factory):
    """Prepared pairs, and the tokenizer of `corpus`."""
    folder = tmp_path_factory.mktemp("pairs")
    made = PrepareConfig(runs.TASK, corpus / "v.model", LENGTH, shards=2, packing="pairs")
    prepare(made, folder / "rows", worker_count=1)
    return folder


def arguments_of(corpus, **changes):
    lengths = {"data.length": LENGTH, "position.max_length": LENGTH}
    return runs.settings(corpus, **PAIRS | lengths | changes)


@pytest.fixture(scope="module")
def calm(pairs, tmp_path_factory):
    steps = {"train.steps": runs.STEPS, "checkpoint.every": 3, "eval.every": 12}
    arguments = arguments_of(pairs, **steps)
    return arguments, runs.left_alone(arguments, tmp_path_factory.mktemp("calm"), devices=1)


@pytest.mark.slow
def test_killed_and_started_again_it_is_the_same_run(calm, tmp_path):
    arguments, folder = calm
    runs.assert_kills_change_nothing(arguments, 1, folder, tmp_path / "killed", [runs.LATE])


@pytest.mark.slow
def test_eight_devices_give_the_losses_of_one(calm, tmp_path):
    arguments, folder = calm
    on_eight = [*arguments, *runs.mesh(fsdp=2, tensor=2)]
    other = runs.left_alone(on_eight, tmp_path / "eight", devices=8)
    for one, eight in zip(runs.numbers(folder), runs.numbers(other), strict=True):
        assert one.keys() == eight.keys()
        assert {"loss", "valid_loss"} & one.keys()
        for name, value in one.items():
            assert eight[name] == pytest.approx(value, rel=2e-3, abs=2e-3), name


@pytest.mark.slow
def test_it_is_loaded_exported_and_fine_tuned_with_its_heads(calm, tmp_path):
    _, folder = calm
    model = load(folder)
    assert model.config.next_sentence_head
    assert model.tokenizer.pair_separators == 1
    assert len(model.fill_mask("the dog [MASK].").guesses) == 1
    save_model(model, tmp_path / "exported")
    back = load(tmp_path / "exported")
    assert dataclasses.asdict(back.config) == dataclasses.asdict(model.config)
    for path, array in model.params.items():
        np.testing.assert_array_equal(array, back.params[path])
    arguments = [f"--checkpoint={folder}", "--task=builtin_nli", "--config=finetune:quick"]
    arguments += ["--train_examples=32", "--dev_examples=16", "--config.epochs=1"]
    arguments += [f"--config.length={LENGTH}", f"--workdir={tmp_path / 'tuned'}"]
    assert cli.main(["finetune", *arguments]) == 0
    tuned = load(tmp_path / "tuned")
    assert tuned.classification_heads == {"builtin_nli": 3}
    assert tuned.tokenizer.pair_separators == 1


@pytest.mark.slow
def test_the_live_reader_trains_on_pairs_and_resumes(corpus, tmp_path):
    short = {"train.steps": 6, "checkpoint.every": 2, "eval.every": 6}
    arguments = arguments_of(corpus, **short, reader="live")
    assert runs.run_here(arguments, tmp_path / "calm").finished
    assert not runs.run_here(arguments, tmp_path / "stopped", runs.StopAfter(4)).finished
    assert runs.run_here(arguments, tmp_path / "stopped").finished
    runs.assert_same_run(arguments, tmp_path / "calm", tmp_path / "stopped")


def test_data_prepared_without_pairs_is_refused_before_anything_is_written(corpus, tmp_path):
    arguments = arguments_of(corpus, **{"data.length": runs.LENGTH})
    workdir = tmp_path / "run"
    code = cli.main(["pretrain", "--config=tupe_r:tiny", f"--workdir={workdir}", *arguments])
    assert code == 2
    assert not workdir.exists()


def test_pairs_are_refused_by_an_objective_without_them(pairs):
    masked_lm = {"objective.name": "masked_lm"}
    with pytest.raises(UserError, match=r"data\.packing=pairs"):
        runs.config_of(arguments_of(pairs, **masked_lm))

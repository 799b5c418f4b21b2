"""Runs of replaced-token detection: killed, on several devices, loaded and fine-tuned."""

import dataclasses
import json

import numpy as np
import pytest

from tests.training import runs
from tupe_jax import cli
from tupe_jax.inference.loading import load
from tupe_jax.inference.model_card import save_model

pytestmark = pytest.mark.slow
ELECTRA = {
    "objective.name": "replaced_token",
    "objective.replace_by_mask": 1.0,
    "objective.replace_by_random": 0.0,
    "objective.generator_size": 0.5,
    "train.ema_decay": 0.9,
    "train.steps": runs.STEPS,
    "checkpoint.every": 3,
    "eval.every": 12,
}


@pytest.fixture(scope="module")
def calm(corpus, tmp_path_factory):
    arguments = runs.settings(corpus, **ELECTRA)
    return arguments, runs.left_alone(arguments, tmp_path_factory.mktemp("calm"), devices=1)


def test_killed_and_started_again_it_is_the_same_run(calm, tmp_path):
    arguments, folder = calm
    runs.assert_kills_change_nothing(arguments, 1, folder, tmp_path / "killed", [runs.LATE])


def test_eight_devices_give_the_losses_of_one(calm, tmp_path):
    arguments, folder = calm
    on_eight = [*arguments, *runs.mesh(fsdp=2, tensor=2)]
    other = runs.left_alone(on_eight, tmp_path / "eight", devices=8)
    for one, eight in zip(runs.numbers(folder), runs.numbers(other), strict=True):
        assert one.keys() == eight.keys()
        for name, value in one.items():
            assert eight[name] == pytest.approx(value, rel=2e-3, abs=2e-3), name


def test_a_checkpoint_has_the_shared_embeddings_once_and_loads_as_the_discriminator(calm, tmp_path):
    arguments, folder = calm
    params = runs.final_state(arguments, folder).state.params
    assert set(params) == {"generator", "discriminator"}
    assert "word_embedding" in params["discriminator"]["encoder"]
    assert "word_embedding" not in params["generator"]["encoder"]
    model = load(folder)
    assert model.config.replaced_token_head
    assert model.generator.config.hidden_size == model.config.hidden_size // 2
    assert len(model.fill_mask("the dog [MASK].").guesses) == 1
    save_model(model, tmp_path / "exported")
    back = load(tmp_path / "exported")
    assert dataclasses.asdict(back.config) == dataclasses.asdict(model.config)
    for ours, exported in ((model, back), (model.generator, back.generator)):
        for path, array in ours.params.items():
            np.testing.assert_array_equal(array, exported.params[path])


def test_the_discriminator_is_fine_tuned(calm, tmp_path, capsys):
    _, folder = calm
    command = [
        "finetune",
        f"--checkpoint={folder}",
        "--task=builtin_cola",
        "--config=finetune:quick",
    ]
    sizes = ["--train_examples=32", "--dev_examples=16", "--config.epochs=1"]
    workdir = tmp_path / "tuned"
    length = f"--config.length={runs.LENGTH}"
    assert cli.main([*command, *sizes, length, f"--workdir={workdir}"]) == 0
    tuned = load(workdir)
    assert tuned.classification_heads == {"builtin_cola": 2}
    assert tuned.config.hidden_size == load(folder).config.hidden_size
    assert tuned.generator is None
    assert json.loads(next(workdir.rglob("model/config.json")).read_text()).get("generator") is None

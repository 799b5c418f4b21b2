"""The quick start whole, by the command of the README, and what its model is then good for."""

import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import tupe_jax
from tests import users
from tests.training.conftest import compile_once
from tests.training.runs import NeverStop
from tupe_jax import cli
from tupe_jax.config.loading import load_config
from tupe_jax.config.validation import from_mapping
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.finetune.results import trials_of
from tupe_jax.finetune.run import finetune
from tupe_jax.finetune.tasks import open_task
from tupe_jax.inference.loading import load
from tupe_jax.lab.minimal_pairs import builtin_minimal_pairs
from tupe_jax.training.monitoring.metrics import read_metrics

__all__ = ["compile_once"]
# Fine-tuning takes a thousand steps.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimised")]

FILLED = {
    "The old doctors [MASK] tired.": {"are", "were"},
    "The old doctor [MASK] tired.": {"is", "was"},
    "The girls who saw the dog [MASK] happy.": {"are", "were"},
    "The teacher was seen [MASK] the students.": {"by"},
    "There is [MASK] dog in the house.": {"a", "no", "one"},
    "There are two [MASK] in the kitchen.": {"boys", "dogs", "men", "girls", "women", "cats"},
    "An [MASK] apple was on the table.": {"old", "ugly", "expensive", "excellent", "empty"},
    "They did not [MASK] the letter.": {"see", "give", "take", "follow", "discuss", "find"},
    "He has [MASK] the ball.": {"taken", "given", "followed", "shown", "offered", "seen"},
    "[MASK] girls are in the garden.": {"the", "some", "two", "many", "these", "those"},
}
"""Sentences such as the built-in grammar makes, and words that may stand there."""


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here") / "runs" / "quickstart"
    command = [sys.executable, "-m", "tupe_jax", "pretrain", f"--workdir={folder}"]
    subprocess.run(command, check=True, env=users.environment())
    return folder


def test_it_learns_what_its_header_says(workdir):
    *_, last = [
        line["valid_loss"]
        for line in read_metrics(workdir / "metrics.jsonl")
        if "valid_loss" in line
    ]
    assert last == pytest.approx(2.46, abs=0.15)


@pytest.fixture(scope="module")
def model(workdir):
    return tupe_jax.load(workdir)


def test_it_fills_masks_with_words_that_may_stand_there(model):
    """By chance it would be one in hundreds."""
    best = {filled.text: filled.guesses[0][0].piece for filled in model.fill_mask(list(FILLED))}
    right = [text for text, words in FILLED.items() if best[text] in words]
    assert len(right) >= 8, best


def test_it_prefers_good_sentences_to_bad_ones(model):
    pairs = builtin_minimal_pairs(100)
    good = model.score([pair.good for pair in pairs])
    bad = model.score([pair.bad for pair in pairs])
    assert np.mean(good > bad) > 0.65  # by chance 0.5, give or take 0.05; measured 0.77


def test_the_readme_uses_it(workdir, monkeypatch, capsys):
    """The lines of the README's section on using a model, as they stand there."""
    here = workdir.parents[1]
    monkeypatch.chdir(here)
    (here / "sentences.txt").write_text("The dog slept.\nThe girls laughed.\n")
    text = (users.ROOT / "README.md").read_text().split("## Use a model")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(code, {})
    (lines,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    for line in lines.splitlines():
        assert cli.main(shlex.split(line)[1:]) == 0, line
    told = capsys.readouterr().out
    assert "are" in told
    assert np.load(here / "vectors.npy").shape == (2, 128)
    assert (here / "quickstart" / "model.safetensors").exists()


def test_pre_training_helps_to_tell_good_sentences_from_bad_ones(workdir, tmp_path):
    """Measured: 65.2 against 55.5 %; with other seeds 65.1 against 55.6, 62.5 against 50.2 %."""
    pretrained = load(workdir)
    task = open_task("builtin_cola", train_examples=2000, dev_examples=1000)

    def accuracy(from_scratch):
        settings = ["--config.length=64", "--config.epochs=2", "--config.evaluations_per_epoch=1"]
        values = load_config(
            "finetune:quick",
            [*settings, f"--config.from_scratch={from_scratch}", "--config.keep_weights=False"],
        ).to_dict()
        config = from_mapping(FinetuneConfig, values, "finetune")
        trials = trials_of([config.optimizer.peak_learning_rate], [0])
        (result,) = finetune(
            config, pretrained, task, trials, tmp_path / str(from_scratch), NeverStop()
        )
        return result.last.scores["dev"]["accuracy"]

    assert accuracy(from_scratch=False) > accuracy(from_scratch=True) + 0.05

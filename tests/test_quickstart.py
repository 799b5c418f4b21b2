"""The quick start whole, by the command of the README, and what its model is then good for."""

import numpy as np
import pytest

from tests.training.conftest import compile_once
from tests.training.runs import NeverStop
from tupe_jax import cli
from tupe_jax.checks import from_mapping
from tupe_jax.config_files import load_config
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.finetune.run import finetune
from tupe_jax.finetune.task import open_task
from tupe_jax.finetune.trial import trials_of
from tupe_jax.pretrained import load_pretrained
from tupe_jax.training.metrics import read_metrics

__all__ = ["compile_once"]

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "quickstart"
    assert cli.main(["pretrain", f"--workdir={folder}"]) == 0
    return folder


def test_it_learns_what_its_header_says(workdir):
    *_, last = [
        line["valid_loss"]
        for line in read_metrics(workdir / "metrics.jsonl")
        if "valid_loss" in line
    ]
    assert last == pytest.approx(2.46, abs=0.15)


def test_pre_training_helps_to_tell_good_sentences_from_bad_ones(workdir, tmp_path):
    """Measured with these seeds: 64.1 % (63.2 to 64.9) against 54.8 % (54.4 to 55.4)."""
    pretrained = load_pretrained(workdir)
    task = open_task("builtin_cola", train_examples=2000, dev_examples=1000)

    def accuracies(from_scratch):
        settings = ["--config.length=64", "--config.epochs=3", "--config.keep_weights=False"]
        values = load_config(
            "finetune:quick", [*settings, f"--config.from_scratch={from_scratch}"]
        ).to_dict()
        config = from_mapping(FinetuneConfig, values, "finetune")
        trials = trials_of([config.optimizer.peak_learning_rate], SEEDS)
        results = finetune(
            config, pretrained, task, trials, tmp_path / str(from_scratch), NeverStop()
        )
        return np.array([result.last.scores["dev"]["accuracy"] for result in results])

    trained, scratch = accuracies(from_scratch=False), accuracies(from_scratch=True)
    assert trained.min() > scratch.max()
    assert trained.mean() > scratch.mean() + 0.05

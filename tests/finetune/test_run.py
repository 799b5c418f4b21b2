"""Fine-tuning from examples to the work directory: its files, stopping anywhere, rejections."""

import dataclasses
import json

import numpy as np
import pytest

import tupe_jax
from tests.finetune import tuning
from tests.finetune.tuning import CONFIG, ONE, TWO, tune
from tests.training.runs import StopAfter
from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.data.labelled.example import Example
from tupe_jax.finetune.groups import plan_groups
from tupe_jax.finetune.results import (
    Evaluation,
    Trial,
    TrialResult,
    read_result,
    trials_of,
    write_result,
)
from tupe_jax.finetune.train_loop import Schedule, best_of
from tupe_jax.inference.loading import load
from tupe_jax.utils.errors import UserError


@pytest.fixture(scope="module")
def finished(model_folder, task, tmp_path_factory):
    """Two trials, one after the other."""
    workdir = tmp_path_factory.mktemp("finished")
    return workdir, tune(model_folder, task, workdir)


def contents(workdir, but=()):
    """All files of a work directory, bit for bit."""
    return {
        file.relative_to(workdir).as_posix(): file.read_bytes()
        for file in sorted(workdir.rglob("*"))
        if file.is_file() and file.name not in but
    }


def test_each_trial_leaves_result_predictions_and_model(finished):
    workdir, results = finished
    assert [result.trial for result in results] == [ONE, TWO]
    expected = {"config.json"} | {
        f"{trial.name}/{file}"
        for trial in (ONE, TWO)
        for file in (
            "result.json",
            "predictions/dev/predictions.tsv",
            "model/model.safetensors",
            "model/config.json",
            "model/vocabulary.model",
            "model/README.md",
        )
    }
    assert contents(workdir).keys() == expected
    assert [read_result(trial, workdir) for trial in (ONE, TWO)] == results


def test_evaluations_come_twice_an_epoch_and_the_best_is_among_them(finished):
    for result in finished[1]:
        assert [evaluation.step for evaluation in result.evaluations] == [4, 7, 11, 14]
        assert [evaluation.epoch for evaluation in result.evaluations] == [4 / 7, 1, 11 / 7, 2]
        accuracies = [evaluation.scores["dev"]["accuracy"] for evaluation in result.evaluations]
        assert result.best.scores["dev"]["accuracy"] == max(accuracies)
        assert result.last is result.evaluations[-1]
        assert all(0.3 < evaluation.train_loss < 1.5 for evaluation in result.evaluations)


def test_the_kept_model_is_that_of_the_best_evaluation(finished, task):
    """Its accuracy is the one on record, and its answers are the predictions on file."""
    workdir, results = finished
    examples = task.dev["dev"]
    for result in results:
        model = tupe_jax.load(workdir / result.trial.name)
        answers = model.predict([example.sentence1 for example in examples])
        said = [answer.label for answer in answers]
        right = np.mean([task.classes[e.label] == s for e, s in zip(examples, said, strict=True)])
        assert right == result.best.scores["dev"]["accuracy"]
        lines = (workdir / result.trial.name / "predictions/dev/predictions.tsv").read_text()
        assert said == [line.split("\t")[1] for line in lines.splitlines()[1:]]


def test_the_kept_model_has_the_metadata_of_its_task(finished, task):
    workdir, results = finished
    for result in results:
        head = load(workdir / result.trial.name).metadata.heads[task.name]
        assert (head.classes, head.texts, head.length) == (task.classes, 1, CONFIG.length)
        assert head.trial["learning_rate"] == result.trial.learning_rate
        assert head.trial["scores"] == result.best.scores


def test_finished_trials_are_not_repeated(finished, model_folder, task):
    workdir, results = finished
    file = workdir / ONE.name / "result.json"
    before = file.stat().st_mtime_ns
    assert tune(model_folder, task, workdir, [ONE]) == results[:1]
    assert file.stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.parametrize("looks", [3, 16, 40])
def test_stopping_anywhere_changes_nothing(looks, finished, model_folder, task, tmp_path):
    """The run looks before each step, within each evaluation, and between trials."""
    assert tune(model_folder, task, tmp_path, stop=StopAfter(looks)) is None
    assert tune(model_folder, task, tmp_path) == finished[1]
    assert contents(tmp_path) == contents(finished[0])


@pytest.mark.slow
def test_a_resumed_group_gives_the_results_of_its_trials_alone(
    finished, model_folder, task, tmp_path
):
    together = dataclasses.replace(CONFIG, at_once=2, keep_weights=False)
    assert tune(model_folder, task, tmp_path, config=together, stop=StopAfter(12)) is None
    alone = dataclasses.replace(together, at_once=1)  # has no effect on started groups
    results = tune(model_folder, task, tmp_path, config=alone)
    assert not (tmp_path / ONE.name / "model").exists()
    for ours, theirs in zip(results, finished[1], strict=True):
        for one, other in zip(ours.evaluations, theirs.evaluations, strict=True):
            assert one.train_loss == pytest.approx(other.train_loss, rel=1e-4)


def test_a_group_that_was_killed_after_its_last_result_leaves_no_checkpoints(tmp_path):
    [group] = plan_groups(tmp_path, [ONE], at_once=1, devices=1)
    group.begin()
    assert plan_groups(tmp_path, [ONE], at_once=1, devices=1) == [group]
    evaluation = Evaluation(1, 1.0, {"dev": {"accuracy": 0.5}}, 0.7)
    (tmp_path / ONE.name).mkdir()
    write_result(TrialResult(ONE, (evaluation,), evaluation), tmp_path)
    assert plan_groups(tmp_path, [ONE], at_once=1, devices=1) == []
    assert not group.folder.exists()


def test_rejected_settings_are_not_written(model_folder, task, tmp_path):
    wrong = dataclasses.replace(CONFIG, optimizer=OptimizerConfig(warmup="soon"))
    with pytest.raises(UserError, match="soon"):
        tune(model_folder, task, tmp_path, [ONE], config=wrong)
    assert not (tmp_path / "config.json").exists()


def test_duplicate_trials_are_rejected():
    with pytest.raises(UserError, match="0, 0"):
        trials_of([1e-3], [0, 0])


@pytest.mark.slow
def test_from_scratch_nothing_is_taken_from_the_checkpoint(finished, model_folder, task, tmp_path):
    scratch = dataclasses.replace(CONFIG, from_scratch=True)
    [result] = tune(model_folder, task, tmp_path, [ONE], config=scratch)
    assert result.evaluations[0].train_loss != finished[1][0].evaluations[0].train_loss
    words = load(tmp_path).params["encoder", "word_embedding"]
    pretrained = load(model_folder).params["encoder", "word_embedding"]
    assert abs(np.corrcoef(words.ravel(), pretrained.ravel())[0, 1]) < 0.1


@pytest.mark.slow
def test_regression_learns_scores(model_folder, tmp_path):
    """Words that score 0 or 5, divided by 5; constant guessing would leave a loss of 0.25."""
    words = ("boat", "city", "door", "farm", "girl", "hill", "lamp", "moon")
    examples = [Example(f"the {word}", None, 5.0 * (word < "g")) for word in words * 8]
    task = tuning.own_task(classes=None, examples=examples, score_scale=5.0)
    config = dataclasses.replace(CONFIG, epochs=20, evaluations_per_epoch=1, save_seconds=60)
    [result] = tune(model_folder, task, tmp_path, [Trial(1e-2, 0)], config=config)
    assert result.best.scores["dev"]["pearson"] > 0.9
    assert result.last.train_loss < 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 8}, r"finetune\.batch_size .*16.* 8.*--workdir"),
        ({"length": 24}, r"finetune\.length .*32.* 24"),
        ({"from_scratch": True}, r"pretrained\.fingerprint was"),
    ],
)
def test_a_changed_config_is_rejected(change, words, finished, model_folder, task):
    with pytest.raises(UserError, match=words):
        tune(model_folder, task, finished[0], config=dataclasses.replace(CONFIG, **change))


def test_other_examples_are_rejected(finished, model_folder, task):
    other = dataclasses.replace(task, train=task.train[:-1])
    with pytest.raises(UserError, match=r"task\.rows"):
        tune(model_folder, other, finished[0])


def test_sequences_longer_than_the_models_positions_are_rejected(model_folder, task, tmp_path):
    with pytest.raises(UserError, match=r"length=65 .*max_length=64"):
        tune(model_folder, task, tmp_path, config=dataclasses.replace(CONFIG, length=65))
    assert not list(tmp_path.iterdir())


def test_few_steps_are_evaluated_once_each():
    assert Schedule(steps_per_epoch=1, epochs=3, evaluations_per_epoch=2).evaluations == {1, 2, 3}
    assert Schedule(steps_per_epoch=7, epochs=1, evaluations_per_epoch=2).evaluations == {4, 7}


def test_the_first_of_equals_is_the_best_and_nan_is_none(task):
    def evaluation(step, accuracy):
        return Evaluation(step, step, {"dev": {"accuracy": accuracy}}, train_loss=0.5)

    def best(*accuracies):
        return best_of(task, [evaluation(n, value) for n, value in enumerate(accuracies)]).step

    assert best(0.5, 0.7, 0.7, 0.6) == 1
    assert best(float("nan"), 0.1) == 1
    assert best(float("nan"), float("nan")) == 0


def test_results_with_nan_are_valid_json_and_come_back(task, tmp_path, finished):
    nan = Evaluation(1, 0.5, {"dev": {"pearson": float("nan")}}, train_loss=float("inf"))
    result = dataclasses.replace(finished[1][0], evaluations=(nan,), best=nan)
    (tmp_path / ONE.name).mkdir()
    write_result(result, tmp_path)

    def refuse(constant):
        raise AssertionError(constant)

    json.loads((tmp_path / ONE.name / "result.json").read_text(), parse_constant=refuse)
    assert np.isnan(read_result(ONE, tmp_path).best.scores["dev"]["pearson"])


def test_a_damaged_result_is_reported(tmp_path):
    (tmp_path / ONE.name).mkdir()
    (tmp_path / ONE.name / "result.json").write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        read_result(ONE, tmp_path)

"""Predictions are files in the format of GLUE's server."""

import numpy as np
import pytest

from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import TASKS
from tupe_jax.finetune.results import predictions_file, write_predictions
from tupe_jax.finetune.tasks import FinetuneTask

# As the server's own sample submission names them.
SUBMISSION = {
    "CoLA.tsv",
    "MNLI-m.tsv",
    "MNLI-mm.tsv",
    "MRPC.tsv",
    "QNLI.tsv",
    "QQP.tsv",
    "RTE.tsv",
    "SST-2.tsv",
    "STS-B.tsv",
    "WNLI.tsv",
}


def task(name, classes=None, score_scale=1.0):
    good = [Example("a", None, 0)]
    return FinetuneTask(name, classes, ("accuracy",), good, {"dev": good}, score_scale=score_scale)


def test_files_of_all_glue_tasks_make_a_submission():
    files = {
        predictions_file(task(name), split)
        for name, of in TASKS.items()
        if name != "snli"
        for split in of.test_splits
    }
    assert {file.name for file in files} == SUBMISSION
    assert {file.parent.name for file in files} == {"test"}


def test_dev_splits_go_beside_them():
    assert predictions_file(task("mnli"), "dev_mismatched").as_posix() == "dev/MNLI-mm.tsv"
    assert predictions_file(task("cola"), "dev").as_posix() == "dev/CoLA.tsv"
    assert predictions_file(task("snli"), "dev").as_posix() == "dev/predictions.tsv"


def test_classes_are_written_by_name(tmp_path):
    rte = task("rte", TASKS["rte"].form.classes)
    path = write_predictions(tmp_path, rte, "test", np.array([1, 0], np.int32))
    assert path == tmp_path / "test/RTE.tsv"
    assert path.read_text() == "index\tprediction\n0\tnot_entailment\n1\tentailment\n"


def test_similarities_are_scores_between_0_and_5(tmp_path):
    scores = np.array([-0.1, 0.5, 0.84123, 1.2], np.float32)
    path = write_predictions(tmp_path, task("stsb", score_scale=5.0), "test", scores)
    assert path.read_text() == "index\tprediction\n0\t0.000\n1\t2.500\n2\t4.206\n3\t5.000\n"


def test_scores_of_a_custom_task_are_not_clipped(tmp_path):
    path = write_predictions(tmp_path, task("prices"), "dev", np.array([-3.0, 120.5]))
    assert path.read_text().split() == ["index", "prediction", "0", "-3.000", "1", "120.500"]


@pytest.mark.parametrize("name", ["wnli", "snli"])
def test_written_again_they_are_replaced(tmp_path, name):
    of = task(name, ("0", "1"))
    write_predictions(tmp_path, of, "test", np.array([1, 1]))
    path = write_predictions(tmp_path, of, "test", np.array([0]))
    assert path.read_text() == "index\tprediction\n0\t0\n"
    assert list(path.parent.iterdir()) == [path]

"""`tupe glue`, from files to table: killed, sharded or merged, the table is the same."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.finetune.glue_files import write_split, write_test_split
from tupe_jax import cli
from tupe_jax.data.labelled.example import Example

ROOT = Path(__file__).parents[2]
WORDS = ("boat", "city", "door", "farm", "girl", "hill", "lamp", "moon")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """RTE and STS-B in two dozen rows; RTE with a test file."""
    folder = tmp_path_factory.mktemp("glue")
    pairs = [(a, b) for a in WORDS for b in WORDS[:4]]
    for task, label in (
        ("rte", lambda a, b: int(a != b)),
        ("stsb", lambda a, b: 5.0 * (a == b)),
    ):
        examples = [Example(f"the {a}", f"a {b}", label(a, b)) for a, b in pairs]
        write_split(folder, task, "train.tsv", examples[:24])
        write_split(folder, task, "dev.tsv", examples[24:])
    write_test_split(folder, "rte", "test.tsv", pairs[:3])
    return folder


@pytest.fixture(scope="module")
def arguments(random_model, data_dir):
    return [
        "glue",
        f"--checkpoint={random_model}",
        f"--data_dir={data_dir}",
        "--config.tasks=rte,stsb",
        "--config.learning_rates=1e-3",
        "--config.seeds=0,1",
        "--config.finetune.length=16",
        "--config.finetune.epochs=1",
        "--config.finetune.batch_size=8",
    ]


def glue(arguments, workdir):
    assert cli.main([*arguments, f"--workdir={workdir}"]) == 0
    return (workdir / "table.md").read_text()


@pytest.fixture(scope="module")
def calm(arguments, tmp_path_factory):
    """The work directory of a run that nobody disturbed."""
    workdir = tmp_path_factory.mktemp("calm")
    glue(arguments, workdir)
    return workdir


def results(workdir):
    return {file: file.stat().st_mtime_ns for file in workdir.rglob("result.json")}


@pytest.mark.slow
def test_the_table_has_the_papers_results(calm, random_model):
    table = (calm / "table.md").read_text()
    assert "| TUPE-R | 1M | 86.21/86.19 |" in table
    assert "Unfinished" not in table
    ours = list(csv.DictReader((calm / "table.csv").read_text().splitlines()))[-2]
    assert (ours["model"], ours["CoLA"], ours["numbers in Avg"]) == (str(random_model), "", "2")
    values = json.loads((calm / "table.json").read_text())
    by_seed = values["best"]["rte"]["splits"]["dev"][0]["by_seed"]
    assert float(ours["RTE"]) == pytest.approx(50 * sum(by_seed.values()), abs=0.006)


@pytest.mark.slow
def test_predictions_are_there_in_glues_format(calm):
    for trial in (calm / "rte").glob("lr*"):
        lines = (trial / "predictions/test/RTE.tsv").read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2"]
        assert len((trial / "predictions/dev/RTE.tsv").read_text().splitlines()) == 9


@pytest.mark.slow
def test_a_finished_protocol_is_only_reported(calm, arguments, capsys):
    before, table = results(calm), (calm / "table.md").read_text()
    assert len(before) == 4
    assert glue(arguments, calm) == table
    assert results(calm) == before
    assert capsys.readouterr().out == table
    assert cli.main(["glue", "--report", f"--workdir={calm}"]) == 0
    assert capsys.readouterr().out == table


@pytest.mark.slow
def test_a_killed_and_restarted_protocol_gives_the_same_table(calm, arguments, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "tupe_jax", *arguments, f"--workdir={tmp_path}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    while not results(tmp_path) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = results(tmp_path)
    assert 0 < len(before) < 4
    assert glue(arguments, tmp_path) == (calm / "table.md").read_text()
    assert before.items() <= results(tmp_path).items()


@pytest.mark.slow
def test_shards_make_the_same_table(calm, arguments, tmp_path, capsys):
    for index in range(2):
        glue([*arguments, f"--shard={index}/2"], tmp_path / f"machine{index}")
    half = (tmp_path / "machine0/table.md").read_text()
    assert "* Unfinished trials: rte 1 of 2, stsb 1 of 2." in half
    for index in range(2):
        shutil.copytree(tmp_path / f"machine{index}", tmp_path / "both", dirs_exist_ok=True)
    capsys.readouterr()
    assert cli.main(["glue", "--report", f"--workdir={tmp_path}/both"]) == 0
    assert capsys.readouterr().out == (calm / "table.md").read_text()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("--config.tasks=rte,mnli", r"mnli, train: .*train\.tsv"),
        ("--config.tasks=rte,colla", "'colla' .did you mean 'cola'"),
        ("--config.finetune.epoch=3", "no setting 'epoch' .did you mean 'epochs'"),
        ("--shard=2/2", "--shard=2/2"),
        ("--checkpoint=nowhere", "nowhere"),
        ("--report", "--report"),
    ],
)
def test_what_is_wrong_is_one_line_before_any_training(arguments, tmp_path, capfd, wrong, message):
    name = wrong.partition("=")[0]
    right = [argument for argument in arguments if argument.partition("=")[0] != name]
    code = cli.main([*right, wrong, f"--workdir={tmp_path}"])
    assert code == cli.USER_ERROR_EXIT_CODE
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said)
    assert not list(tmp_path.glob("*/*"))


def test_a_missing_model_is_one_line(tmp_path, capsys):
    assert cli.main(["glue", f"--workdir={tmp_path}"]) == cli.USER_ERROR_EXIT_CODE
    assert "--checkpoint=DIR" in capsys.readouterr().err

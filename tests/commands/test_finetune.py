"""`tupe finetune`: custom files, a kill at any moment, and errors before training."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.finetune.test_run import contents
from tupe_jax import cli

ROOT = Path(__file__).parents[2]
WORDS = ("boat", "city", "door", "farm", "girl", "hill", "lamp", "moon")


@pytest.fixture(scope="module")
def own_files(tmp_path_factory):
    """Does the first word come before the second in the alphabet?"""
    folder = tmp_path_factory.mktemp("own")
    lines = [f"the {a}\ta {b}\t{'yes' if a < b else 'no'}" for a in WORDS for b in WORDS]
    for name, part in (("train", lines[:48]), ("dev", lines[48:])):
        (folder / f"{name}.tsv").write_text("\n".join(["one\tother\tanswer", *part]) + "\n")
    return folder


@pytest.fixture(scope="module")
def arguments(random_model, own_files):
    return [
        "finetune",
        f"--checkpoint={random_model}",
        f"--task={own_files}/train.tsv",
        f"--dev={own_files}/dev.tsv",
        "--columns=one,other,answer",
        "--learning_rates=1e-3",
        "--seeds=0,1",
        "--config.length=32",
        "--config.batch_size=8",
        "--config.epochs=2",
        "--config.save_seconds=0",
    ]


@pytest.fixture(scope="module")
def calm(arguments, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("calm")
    assert cli.main([*arguments, f"--workdir={workdir}"]) == 0
    return workdir


@pytest.mark.slow
def test_best_and_last_evaluation_of_each_trial_are_printed(arguments, own_files, calm, capsys):
    assert cli.main([*arguments, f"--workdir={calm}"]) == 0, "finished already"
    out = capsys.readouterr().out
    for trial in ("lr0.001-seed0", "lr0.001-seed1"):
        assert f"{own_files.name}, {trial}:\n  best, epoch" in out
    assert out.count("last, epoch 2: dev accuracy") == 2


@pytest.mark.slow
def test_a_killed_run_resumes_bit_for_bit(arguments, calm, tmp_path):
    """Killed as soon as the first checkpoint is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tupe_jax", *arguments, f"--workdir={tmp_path}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not list(tmp_path.glob("unfinished/*/checkpoints/*/state")):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run was still going on"
    assert cli.main([*arguments, f"--workdir={tmp_path}"]) == 0
    assert contents(tmp_path) == contents(calm)


def other_label(own_files):
    file = own_files / "other.tsv"
    file.write_text("one\tother\tanswer\nthe boat\ta door\tmaybe\n")
    return f"--dev={file}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: "--checkpoint=/nowhere", "/nowhere: no such folder"),
        (lambda _: "--dev=/nowhere/dev.tsv", "/nowhere/dev.tsv: no such file"),
        (other_label, "label 'maybe' is not one of"),
        (lambda _: "--config.batch_sice=4", "did you mean 'batch_size'"),
        (lambda _: "--learning_rates=2", "learning rate 2.0"),
    ],
)
def test_what_is_wrong_is_one_line_before_any_training(
    change, words, arguments, own_files, tmp_path, capsys
):
    changed = change(own_files)
    option = changed.partition("=")[0]
    kept = [argument for argument in arguments if not argument.startswith(f"{option}=")]
    code = cli.main([*kept, changed, f"--workdir={tmp_path / 'run'}"])
    assert code == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("run/unfinished"))

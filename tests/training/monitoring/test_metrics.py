"""metrics.jsonl is whole and valid after kills and resumes; TensorBoard holds the same numbers."""

import json
import math
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest

from tupe_jax.training.monitoring.metrics import METRICS_FILE, MetricWriter, read_metrics
from tupe_jax.utils.errors import RetryError, UserError


@pytest.fixture
def writer(tmp_path):
    writer = MetricWriter(tmp_path)
    yield writer
    writer.close()


def steps(path):
    return [line["step"] for line in read_metrics(path / METRICS_FILE)]


def test_lines_are_on_disk_at_once_step_first(writer, tmp_path):
    writer.write(10, {"loss": np.float32(2.5), "skipped": 1})
    writer.write(20, {"valid_loss": 2.25, "valid_accuracy": 0.5})
    assert (tmp_path / METRICS_FILE).read_text() == (
        '{"step": 10, "loss": 2.5, "skipped": 1}\n'
        '{"step": 20, "valid_loss": 2.25, "valid_accuracy": 0.5}\n'
    )


def test_flushing_reaches_the_storage(writer, tmp_path, monkeypatch):
    """A mounted bucket uploads what was written at fsync, or when the file is closed."""
    synced = []
    monkeypatch.setattr("os.fsync", lambda file: synced.append(os.fstat(file)))
    writer.write(10, {"loss": 2.5})
    writer.flush()
    (events,) = (tmp_path / "tensorboard").iterdir()
    for status, file in zip(synced, (tmp_path / METRICS_FILE, events), strict=True):
        assert os.path.samestat(status, file.stat())
        assert status.st_size > 0


def test_what_is_no_number_is_null(writer, tmp_path):
    writer.write(1, {"loss": math.nan, "grad_norm": np.float32("inf"), "learning_rate": 0.1})

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    (line,) = (tmp_path / METRICS_FILE).read_text().splitlines()
    assert json.loads(line, parse_constant=refuse) == {
        "step": 1,
        "loss": None,
        "grad_norm": None,
        "learning_rate": 0.1,
    }


def scalars_in_tensorboard(workdir):
    """What TensorBoard shows, by name: (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(workdir / "tensorboard")).Reload()
    return {
        tag: [(event.step, event.value) for event in shown.Scalars(tag)]
        for tag in shown.Tags()["scalars"]
    }


def test_tensorboard_shows_the_same_scalars(writer, tmp_path):
    writer.write(10, {"loss": 2.5, "learning_rate": np.float32(0.125)})
    writer.write(20, {"valid_loss": 2.25})
    assert scalars_in_tensorboard(tmp_path) == {
        "loss": [(10, 2.5)],
        "learning_rate": [(10, 0.125)],
        "valid_loss": [(20, 2.25)],
    }


def test_tensorboard_forgets_the_steps_that_a_resumed_run_repeats(writer, tmp_path):
    for step in (10, 20, 30):
        writer.write(step, {"loss": step / 10})
    resumed = MetricWriter(tmp_path)
    resumed.truncate_after(20)
    resumed.write(40, {"loss": 4.0})
    assert scalars_in_tensorboard(tmp_path) == {"loss": [(10, 1.0), (20, 2.0), (40, 4.0)]}
    resumed.close()


def test_a_resumed_run_forgets_the_steps_it_repeats(writer, tmp_path):
    for step in range(10, 60, 10):
        writer.write(step, {"loss": 1.0})
    writer.truncate_after(30)
    assert steps(tmp_path) == [10, 20, 30]
    writer.write(40, {"loss": 0.5})
    assert read_metrics(tmp_path / METRICS_FILE)[-1] == {"step": 40, "loss": 0.5}
    assert not list(tmp_path.glob("*.tmp"))


def test_half_a_line_is_not_read_and_not_written_to(tmp_path):
    whole = '{"step": 10, "loss": 2.5}\n'
    (tmp_path / METRICS_FILE).write_text(whole + '{"step": 20, "lo')
    assert steps(tmp_path) == [10]
    writer = MetricWriter(tmp_path)
    writer.write(20, {"loss": 2.0})
    writer.close()
    assert (tmp_path / METRICS_FILE).read_text() == whole + '{"step": 20, "loss": 2.0}\n'


def test_sigkill_loses_no_line_that_was_written(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tupe_jax.training.monitoring.metrics import _JsonLines\n"
        "lines = _JsonLines(Path(sys.argv[1]))\n"
        "for step in range(7): lines.write(step, {'loss': 1.0})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / METRICS_FILE
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert steps(tmp_path) == list(range(7))


def test_a_foreign_line_is_named(tmp_path):
    (tmp_path / METRICS_FILE).write_text('{"step": 1}\nhello\n{"step": 2}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl:2: .*'hello'"):
        read_metrics(tmp_path / METRICS_FILE)


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(UserError, match=METRICS_FILE):
        read_metrics(tmp_path / METRICS_FILE)


def test_a_full_disk_is_reported(writer, tmp_path):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        with pytest.raises(RetryError, match=r"metrics\.jsonl: .*File too large"):
            writer.write(1, {"loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_a_missing_work_directory_is_reported(tmp_path):
    with pytest.raises(UserError, match="not there"):
        MetricWriter(tmp_path / "not there")


def test_weights_and_biases_without_wandb_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="pip install wandb"):
        MetricWriter(tmp_path, wandb_project="positions")
    assert not list(tmp_path.iterdir())


def test_a_resumed_run_continues_the_same_run_of_weights_and_biases(tmp_path, monkeypatch):
    calls = []

    class Recorder:
        """Replaces wandb, which needs an account."""

        def __getattr__(self, name):
            return lambda *args, **kwargs: calls.append((name, args, kwargs)) or self

    monkeypatch.setitem(sys.modules, "wandb", Recorder())
    for step in (1, 2):
        writer = MetricWriter(tmp_path, wandb_project="positions")
        writer.write(step, {"loss": 0.5})
        writer.close()
    starts = [kwargs for name, _, kwargs in calls if name == "init"]
    assert starts[0] == starts[1]
    assert starts[0]["project"] == "positions"
    assert starts[0]["resume"] == "allow"
    logged = [args[0] for name, args, _ in calls if name == "log"]
    assert logged == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.5}]

"""The metrics of a run: `metrics.jsonl`, TensorBoard, and Weights & Biases if configured.

`metrics.jsonl` is the record: one JSON object per line, `step` first. It is valid after any kill,
and a resumed run removes the lines of the steps that it repeats. The others are views of it.
"""

import importlib
import json
import math
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import jax

from tupe_jax.utils.errors import UserError, reason, writing_failed
from tupe_jax.utils.files import AppendedFile, atomic_file
from tupe_jax.utils.paths import Path, is_object

METRICS_FILE = "metrics.jsonl"
UPLOAD_SECONDS = 60.0
"""On object storage, how old the files may become between flushes."""

Line = dict[str, Any]
"""`step` and the values at it; a value that was NaN or infinite is None."""


class _Sink(Protocol):
    """A destination of scalars."""

    def write(self, step: int, scalars: Mapping[str, float]) -> None: ...
    def truncate_after(self, step: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class MetricWriter:
    """Writes scalars by step to all sinks. Only process 0 writes.

    Flush before a checkpoint is saved: a run that resumes from it does not repeat earlier steps, so
    their metrics must be on disk by then.
    """

    def __init__(self, workdir: Path, *, wandb_project: str = "") -> None:
        self._sinks: list[_Sink] = []
        if jax.process_index() != 0:
            return
        # Before the others: a missing package must stop a run before it writes anything.
        if wandb_project:
            self._sinks.append(_WeightsAndBiases(workdir, wandb_project))
        self._sinks += [_JsonLines(workdir / METRICS_FILE), _TensorBoard(workdir / "tensorboard")]
        self._upload_every = UPLOAD_SECONDS if is_object(workdir) else math.inf
        self._flushed = time.monotonic()

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Record the values at a step."""
        for sink in self._sinks:
            sink.write(step, scalars)
        if self._sinks and time.monotonic() - self._flushed > self._upload_every:
            self.flush()

    def truncate_after(self, step: int) -> None:
        """Drop the metrics of later steps: the run resumes from a checkpoint at `step`."""
        for sink in self._sinks:
            sink.truncate_after(step)

    def flush(self) -> None:
        for sink in self._sinks:
            sink.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def read_metrics(path: Path) -> list[Line]:
    """All complete lines of a `metrics.jsonl`. Its run may still be writing, or may be killed."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; `tupe pretrain` writes it") from None
    return [line for _, line in _parsed(path, text)]


def _parsed(path: Path, text: str) -> Iterator[tuple[str, Line]]:
    """Every complete line, as text and as JSON."""
    # After the last line break there is nothing, or a line that a kill truncated.
    for number, raw in enumerate(text.split("\n")[:-1], start=1):
        try:
            line = json.loads(raw)
            int(line["step"])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{path}:{number}: not a line of metrics: {raw[:60]!r}; remove the line"
            ) from None
        yield raw, line


class _JsonLines:
    """A file with one line per call, passed to the operating system at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._open_with_lines_until(math.inf)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        # JSON has no NaN, and most readers but Python's refuse a file with one.
        values = {name: _number(v) if math.isfinite(v) else None for name, v in scalars.items()}
        with _report_write_errors(self._path):
            self._file.write(json.dumps({"step": step, **values}).encode() + b"\n")

    def truncate_after(self, step: int) -> None:
        self._file.close()
        self._file = self._open_with_lines_until(step)

    def flush(self) -> None:
        """No line is buffered in this process, but a bucket gets them only now."""
        with _report_write_errors(self._path):
            self._file.flush()

    def close(self) -> None:
        with _report_write_errors(self._path):
            self._file.close()

    def _open_with_lines_until(self, step: float) -> AppendedFile:
        """Open the file to append to it, after removing later lines and an incomplete last line."""
        with _report_write_errors(self._path):
            before = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
            after = "".join(
                f"{raw}\n" for raw, line in _parsed(self._path, before) if line["step"] <= step
            )
            if after != before:
                with atomic_file(self._path) as unfinished:
                    unfinished.write_text(after, encoding="utf-8")
            return AppendedFile(self._path)


class _TensorBoard:
    """An event file, in TensorBoard's own format.

    Written with the parts of TensorBoard that do not need TensorFlow. A run on prepared data never
    loads TensorFlow, which saves every process seconds at start and a few hundred megabytes.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._session, self._summary = Event, SessionLog, Summary
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self._path = folder / name
        with _report_write_errors(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = AppendedFile(self._path)
        self._records = RecordWriter(self._file)
        self._record(file_version="brain.Event:2")

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        value = self._summary.Value
        values = [value(tag=name, simple_value=number) for name, number in scalars.items()]
        self._record(step=step, summary=self._summary(value=values))

    def truncate_after(self, step: int) -> None:
        """Makes readers drop later steps of earlier event files."""
        self._record(step=step + 1, session_log=self._session(status=self._session.START))

    def flush(self) -> None:
        with _report_write_errors(self._path):
            self._file.flush()

    def close(self) -> None:
        with _report_write_errors(self._path):
            self._file.close()

    def _record(self, **content: Any) -> None:
        event = self._event(wall_time=time.time(), **content)
        with _report_write_errors(self._path):
            self._records.write(event.SerializeToString())


class _WeightsAndBiases:
    """One W&B run per work directory; a resumed run continues it."""

    def __init__(self, workdir: Path, project: str) -> None:
        try:
            wandb = importlib.import_module("wandb")
        except ImportError:
            raise UserError(
                f"the Weights & Biases project {project!r} is set but wandb is not installed: "
                "`pip install wandb`, or leave the project empty"
            ) from None
        try:
            # W&B writes local files only; it uploads them itself.
            folder = tempfile.mkdtemp() if is_object(workdir) else str(workdir)
            self._run = wandb.init(
                project=project, dir=folder, id=_wandb_id(workdir), resume="allow"
            )
        except wandb.Error as error:
            raise UserError(
                f"Weights & Biases refuses project {project!r} ({error}); run `wandb login`, set "
                "WANDB_MODE=offline, or leave the project empty"
            ) from error
        # W&B's own step may only increase, but a resumed run starts at an earlier step.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log({"step": step, **scalars})

    def truncate_after(self, step: int) -> None:
        """Keep them: a resumed run writes the same values again."""

    def flush(self) -> None:
        """W&B uploads in a separate process."""

    def close(self) -> None:
        self._run.finish()


def _wandb_id(workdir: Path) -> str:
    """The id of the run at W&B, generated once per work directory."""
    path = workdir / "wandb_run_id"
    with _report_write_errors(path):
        if not path.exists():
            path.write_text(secrets.token_hex(4), encoding="utf-8")
        return path.read_text(encoding="utf-8").strip()


def _number(value: float) -> int | float:
    """A Python number: JSON does not take scalars of NumPy or JAX."""
    return value if isinstance(value, int) else float(value)


@contextmanager
def _report_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise writing_failed(
            f"{path}: cannot write metrics ({reason(error)}); free disk space or choose another "
            "--workdir",
            error,
        ) from error

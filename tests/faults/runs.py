"""Small real runs of several kinds, with the command that users give."""

import json
import os
import random
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path as LocalPath
from typing import Any
from unittest.mock import patch

import orbax.checkpoint as ocp

from tests.distributed.ports import free_port
from tests.faults import process
from tests.gcs_emulator import BUCKET, Emulator, environment
from tests.training import runs
from tupe_jax.checkpointing.format import read_metadata
from tupe_jax.checkpointing.manager import FOLDER
from tupe_jax.utils.paths import Path

STEPS = 60
LIMITS = {
    "watchdog.stalled_minutes": 0.75,
    "watchdog.compile_minutes": 6,
    "watchdog.checkpoint_minutes": 1.5,
    "watchdog.silence_seconds": 30,
    "watchdog.stop_seconds": 60,
}
"""Shorter than for users, so that a campaign takes an hour."""
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "1",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
LONGEST_LIMIT_SECONDS = 360.0
_STEP = re.compile(rb"step (\d+)/")


@dataclass(frozen=True)
class Cell:
    """A kind of run."""

    reader: str
    processes: int
    storage: str
    """`local` or `gs`: where work directory, data and tokenizer are."""

    def __str__(self) -> str:
        return f"{self.reader}, {self.processes} x {self.storage}"


@dataclass(frozen=True)
class Campground:
    """What all runs of a campaign share: prepared data, an object store, compiled programs."""

    folder: LocalPath
    emulator: Emulator

    def data(self, cell: Cell) -> Path:
        local = Path(self.folder / "corpus")
        return local if cell.storage == "local" else Path(f"gs://{BUCKET}/corpus")

    def workdir(self, cell: Cell, name: str) -> Path:
        local = Path(self.folder / "runs" / name)
        return local if cell.storage == "local" else Path(f"gs://{BUCKET}/runs/{name}")

    def start(self, cell: Cell, workdir: Path) -> "Start":
        """Start all processes of a run."""
        port = free_port()
        many = [f"--coordinator=localhost:{port}", f"--processes={cell.processes}"]
        many += ["--token=a-run", "--wait=30"]
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        processes, files = [], []
        for index in range(cell.processes):
            files.append(logs / f"{workdir.name}-{time.time_ns()}-{index}.log")
            command = ["pretrain", "--config=tupe_r:tiny", f"--workdir={workdir}"]
            command += [*self.settings(cell)]
            command += [*many, f"--process={index}"] if cell.processes > 1 else []
            processes.append(process.start(command, files[-1]))
        return Start(processes, files, port, self.emulator)

    def settings(self, cell: Cell) -> list[str]:
        return runs.settings(
            self.data(cell),
            reader=cell.reader,
            **{
                "train.steps": STEPS,
                "train.batch_size": 12,  # divisible by every number of processes
                "checkpoint.every": 10,
                "eval.every": 20,
                **LIMITS,
            },
        )

    def remove(self, cell: Cell, name: str) -> None:
        """Delete a run and its logs."""
        workdir = self.workdir(cell, name)
        if cell.storage == "local":
            shutil.rmtree(workdir, ignore_errors=True)
        else:
            self.emulator.delete(f"runs/{name}/")
        for log in (self.folder / "logs").glob(f"{name}-*"):
            log.unlink()


@dataclass
class Start:
    """The processes of one start of a run."""

    processes: Sequence[ForkServerProcess]
    logs: Sequence[LocalPath]
    port: int
    storage: Emulator
    harmed: int | None = None
    """The index of the process that a fault has chosen."""
    frozen: int | None = None
    """The index of the process that cannot end."""

    def victim(self, randomly: random.Random) -> ForkServerProcess:
        self.harmed = randomly.randrange(len(self.processes))
        return self.processes[self.harmed]

    def running(self) -> list[int]:
        return [i for i, one in enumerate(self.processes) if one.exitcode is None]

    def wait(self, seconds: float, but: int | None = None) -> bool:
        """Whether all processes, or all but one, end within this time."""
        until = time.monotonic() + seconds
        while set(self.running()) - {but}:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        for one in self.processes:
            one.kill()
            one.join()

    def codes(self) -> list[int | None]:
        return [one.exitcode for one in self.processes]

    def step(self) -> int:
        """The last step that process 0 has logged."""
        found = _STEP.findall(self.logs[0].read_bytes()) if self.logs[0].exists() else []
        return int(found[-1]) if found else 0

    def wait_for_step(self, share: float, last: int, seconds: float) -> None:
        """Until this share of the steps that are left after the first one was logged, or the end.

        The first step that is logged may be that of a resumed run.
        """
        until = time.monotonic() + seconds
        target = None
        while self.running() and time.monotonic() < until:
            step = self.step()
            if step and target is None:
                target = step + share * (last - step)
            if target is not None and step >= target:
                return
            time.sleep(0.005)

    def tail(self) -> str:
        return "\n".join(
            log.read_text(errors="replace")[-1500:] for log in self.logs if log.exists()
        )


def checkpoints_in(workdir: Path) -> list[Path]:
    """The complete checkpoints of a work directory, oldest first."""
    folder = workdir / FOLDER
    if not folder.exists():
        return []
    return [folder / str(step) for step in sorted(ocp.path.step.checkpoint_steps(folder))]


def outcome(workdir: Path) -> dict[str, Any]:
    """All numbers of a finished run: metrics of every step, checksums of every array, the data.

    As JSON gives them back: floats are exact, tuples are lists.
    """
    newest = read_metadata(checkpoints_in(workdir)[-1])
    numbers: dict[str, Any] = json.loads(
        json.dumps(
            {
                "metrics": runs.numbers(workdir),
                "step": newest.step,
                "data": newest.data,
                "arrays": {name: asdict(array) for name, array in sorted(newest.arrays.items())},
            }
        )
    )
    return numbers


def differences(calm: Mapping[str, Any], harmed: Mapping[str, Any]) -> list[str]:
    """What a harmed run has otherwise than one that was left alone; bit for bit."""
    found = [name for name in ("step", "data", "arrays") if calm[name] != harmed[name]]
    one, other = calm["metrics"], harmed["metrics"]
    steps = {json.dumps(line) for line in one if line not in other} | {
        json.dumps(line) for line in other if line not in one
    }
    found += [f"metrics: {line[:80]}" for line in sorted(steps)[:5]]
    if len(one) != len(other):
        found.append(f"{len(other)} lines of metrics instead of {len(one)}")
    return found


@contextmanager
def campground(folder: LocalPath, emulator: Emulator) -> Iterator[Campground]:
    """Prepare the data of a campaign, locally and in the emulator. At the end nothing runs."""
    variables = environment(emulator.port) | _ENVIRONMENT
    variables["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    with patch.dict(os.environ, variables), process.server():
        _make_corpus(folder / "corpus", emulator)
        yield Campground(folder, emulator)


def _make_corpus(corpus: LocalPath, emulator: Emulator) -> None:
    if not (corpus / "rows").exists():
        corpus.mkdir(parents=True)
        runs.make_corpus(Path(corpus))
    for file in corpus.rglob("*"):
        if file.is_file():
            emulator.write(f"corpus/{file.relative_to(corpus)}", file.read_bytes())

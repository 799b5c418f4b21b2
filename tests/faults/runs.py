"""Small real runs of several kinds, started as users start them."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path as LocalPath
from typing import Any

import orbax.checkpoint as ocp

from tests.distributed.ports import free_port
from tests.gcs_emulator import BUCKET, Emulator, environment
from tests.training import runs
from tupe_jax.checkpointing.format import read_metadata
from tupe_jax.checkpointing.manager import FOLDER
from tupe_jax.utils.paths import Path

STEPS = 400
LIMITS = {"watchdog.stalled_minutes": 0.5, "watchdog.silence_seconds": 10}
"""Shorter than for users, so that a campaign takes an hour."""


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
        many += ["--token=a-run", "--wait=60"]
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        processes, files = [], []
        for index in range(cell.processes):
            files.append(logs / f"{workdir.name}-{time.time_ns()}-{index}.log")
            command = [sys.executable, "-m", "tupe_jax", "pretrain", "--config=tupe_r:tiny"]
            command += [f"--workdir={workdir}", *self.settings(cell)]
            command += [*many, f"--process={index}"] if cell.processes > 1 else []
            with files[-1].open("wb") as log:
                processes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, env=self.environment())
                )
        return Start(processes, files, port, self.emulator)

    def settings(self, cell: Cell) -> list[str]:
        return runs.settings(
            self.data(cell),
            reader=cell.reader,
            **{
                "train.steps": STEPS,
                "checkpoint.every": 40,
                "eval.every": 100,
                **LIMITS,
            },
        )

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **environment(self.emulator.port),
            "PYTHONPATH": str(runs.ROOT),
            "JAX_NUM_CPU_DEVICES": "1",
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        }


@dataclass
class Start:
    """The processes of one start of a run."""

    processes: Sequence[subprocess.Popen[bytes]]
    logs: Sequence[LocalPath]
    port: int
    storage: Emulator
    harmed: int | None = None
    """The index of the process that a fault has chosen."""

    def victim(self, randomly: random.Random) -> subprocess.Popen[bytes]:
        self.harmed = randomly.randrange(len(self.processes))
        return self.processes[self.harmed]

    def running(self) -> list[int]:
        return [i for i, process in enumerate(self.processes) if process.poll() is None]

    def wait(self, seconds: float, but: int | None = None) -> bool:
        """Whether all processes, or all but one, end within this time."""
        until = time.monotonic() + seconds
        while set(self.running()) - {but}:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def codes(self) -> list[int | None]:
        return [process.poll() for process in self.processes]

    def tail(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-1500:] for log in self.logs)


def checkpoints_in(workdir: Path) -> list[Path]:
    """The complete checkpoints of a work directory, oldest first."""
    folder = workdir / FOLDER
    if not folder.exists():
        return []
    return [folder / str(step) for step in sorted(ocp.path.step.checkpoint_steps(folder))]


def outcome(workdir: Path) -> dict[str, Any]:
    """All numbers of a finished run: metrics of every step, checksums of every array, the data."""
    newest = read_metadata(checkpoints_in(workdir)[-1])
    return {
        "metrics": runs.numbers(workdir),
        "step": newest.step,
        "data": newest.data,
        "arrays": {name: asdict(array) for name, array in sorted(newest.arrays.items())},
    }


def differences(calm: dict[str, Any], harmed: dict[str, Any]) -> list[str]:
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


def make_campground(folder: LocalPath, emulator: Emulator) -> Campground:
    """Prepare the data of a campaign, locally and in the emulator; its clients are set up, too."""
    os.environ.update(environment(emulator.port))
    corpus = folder / "corpus"
    corpus.mkdir()
    runs.make_corpus(Path(corpus))
    for file in corpus.rglob("*"):
        if file.is_file():
            emulator.write(f"corpus/{file.relative_to(corpus)}", file.read_bytes())
    return Campground(folder, emulator)

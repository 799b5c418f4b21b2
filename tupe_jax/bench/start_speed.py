"""The time from the command to the first step of a run, in separate processes as for a user."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tupe_jax.config.schema import Config
from tupe_jax.run.compilation_cache import FOLDER as COMPILED
from tupe_jax.training.dataset import DATA_FOLDER, PREPARED_FOLDER, make_dataset
from tupe_jax.training.monitoring.metrics import METRICS_FILE
from tupe_jax.utils.errors import STOPPED_EXIT_CODE, UserError
from tupe_jax.utils.paths import Path

REPEATS = 3
POLL_SECONDS = 0.05

Kind = Literal["cold", "warm", "resumed"]
KINDS: dict[Kind, str] = {
    "cold": "a new run",
    "warm": "a new run that finds its compiled programs",
    "resumed": "a run that was stopped after its first steps",
}


@dataclass(frozen=True)
class StartTime:
    """One start, until the metrics of the first step are written."""

    seconds: float
    cpu_seconds: float
    """The time of all cores."""


def measure_starts(
    config: Config, arguments: Sequence[str], folder: Path
) -> dict[Kind, list[StartTime]]:
    """Start `tupe pretrain` with these arguments, in turns of each kind; data is made before."""
    if not config.train.compilation_cache:
        raise UserError("train.compilation_cache=False: every start would be a cold one")
    given = _data(config, folder / "data")
    own = ["--config.train.log_every=1", f"--config.eval.every={config.train.steps}"]
    times: dict[Kind, list[StartTime]] = {kind: [] for kind in KINDS}
    for repeat in range(REPEATS):
        run, other = folder / f"{repeat}", folder / f"{repeat}-warm"
        command = [*arguments, *given, *own]
        times["cold"].append(_start(command, run))
        shutil.copytree(run / COMPILED, other / COMPILED)
        times["warm"].append(_start(command, other))
        times["resumed"].append(_start(command, run))
        for finished in (run, other):
            shutil.rmtree(finished)
    return times


def _data(config: Config, folder: Path) -> list[str]:
    """Prepared data as an argument, unless the config names some."""
    if config.data.prepared or config.data.reader == "live":
        return []
    make_dataset(config, folder, None)
    return [f"--config.data.prepared={folder / DATA_FOLDER / PREPARED_FOLDER}"]


def _start(arguments: Sequence[str], workdir: Path) -> StartTime:
    """Start a run, and stop it after the first step of this process."""
    workdir.mkdir(exist_ok=True)
    done = _steps(workdir)
    log = workdir / "log.txt"
    # A cache of the user would make every start a warm one; without any, all would be cold.
    own = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
    environment = {k: v for k, v in os.environ.items() if k not in own}
    command = [sys.executable, "-m", "tupe_jax", "pretrain", *arguments, f"--workdir={workdir}"]
    with log.open("w") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while _steps(workdir) == done and not _has_ended(process.pid):
                time.sleep(POLL_SECONDS)
            seconds = time.monotonic() - began
            cpu_seconds = _cpu_seconds(process.pid)
            process.send_signal(signal.SIGTERM)  # saves a checkpoint
            code = process.wait()
        finally:
            process.kill()
    if code not in (0, STOPPED_EXIT_CODE):
        last = (log.read_text().strip().splitlines() or ["nothing"])[-1]
        raise UserError(f"{' '.join(command)} ended with exit code {code}: {last}")
    if _steps(workdir) == done:
        raise UserError("a run ended before it could be stopped; set a larger train.steps")
    return StartTime(seconds, cpu_seconds)


def _steps(workdir: Path) -> int:
    """The last step in the metrics file; a line may be incomplete while it is written."""
    file = workdir / METRICS_FILE
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    complete = [json.loads(line)["step"] for line in lines if line.endswith("\n")]
    return max(complete, default=0)


def _has_ended(process: int) -> bool:
    """Whether a child has ended; it is not reaped, so its CPU time can still be read."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _cpu_seconds(process: int) -> float:
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")

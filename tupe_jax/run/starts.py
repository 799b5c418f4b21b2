"""The starts of a run by a launcher, so that one without progress is not restarted forever.

A launcher records each start in the work directory, with the newest checkpoint at that moment. It
restarts a run after any failure, but not when several starts in a row found the same checkpoint.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path

STARTS_FILE = "starts.jsonl"


@dataclass(frozen=True)
class Start:
    """A line of the file."""

    job: str
    """The scheduler's job, which keeps its name when it is restarted."""
    time: str
    newest_step: int | None
    """The step of the newest complete checkpoint; None if there was none."""


def starts_without_progress(starts: Sequence[Start], job: str, newest_step: int | None) -> int:
    """How many of the last starts of this job found the checkpoint that is still the newest.

    Other jobs do not count: a user who submits the run again wants it to be tried again.
    """
    without = 0
    for start in reversed([start for start in starts if start.job == job]):
        if _order(start.newest_step) < _order(newest_step):
            break
        without += 1
    return without


def _order(step: int | None) -> int:
    return -1 if step is None else step


def read_starts(workdir: Path) -> list[Start]:
    """The recorded starts, oldest first."""
    file = workdir / STARTS_FILE
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Start(**json.loads(line)) for line in lines]


def record_starts(workdir: Path, starts: Sequence[Start]) -> None:
    """Write the whole file: object storage cannot append."""
    workdir.mkdir(parents=True, exist_ok=True)
    with atomic_file(workdir / STARTS_FILE) as unfinished:
        lines = (json.dumps(asdict(start)) + "\n" for start in starts)
        unfinished.write_text("".join(lines), encoding="utf-8")

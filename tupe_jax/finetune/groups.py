"""Which trials train together in one program, and how many fit into a device's memory.

A group that has started has a folder in `unfinished/` with its trials and checkpoints. It resumes
with the same trials, whatever `at_once` is set to later.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax

from tupe_jax.finetune.results import Trial, read_result
from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path, glob_in

UNFINISHED = "unfinished"
TRIALS_FILE = "trials.json"


@dataclass(frozen=True)
class Group:
    """The trials of one program, and the folder of their checkpoints until they are finished."""

    trials: tuple[Trial, ...]
    folder: Path

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.folder / TRIALS_FILE) as unfinished:
            unfinished.write_text(json.dumps([asdict(trial) for trial in self.trials]) + "\n")

    def end(self) -> None:
        Path(self.folder).rmtree()


def plan_groups(workdir: Path, trials: Sequence[Trial], at_once: int, devices: int) -> list[Group]:
    """The groups that finish these trials, started groups first.

    The size of a new group above the number of devices is a multiple of it.
    """
    unfinished = [trial for trial in trials if read_result(trial, workdir) is None]
    started_groups = _started(workdir)
    for group in started_groups:  # killed after its last result was written
        if all(read_result(trial, workdir) is not None for trial in group.trials):
            group.end()
    groups = [
        group
        for group in started_groups
        if set(group.trials) <= set(trials) and not set(group.trials).isdisjoint(unfinished)
    ]
    started = {trial for group in groups for trial in group.trials}
    rest = [trial for trial in unfinished if trial not in started]
    while rest:
        size = min(at_once, len(rest))
        size -= size % devices if size > devices else 0
        groups.append(_group(workdir, tuple(rest[:size])))
        rest = rest[size:]
    return groups


def _started(workdir: Path) -> list[Group]:
    files = sorted(glob_in(workdir / UNFINISHED, f"*/{TRIALS_FILE}"))
    return [
        Group(tuple(Trial(**trial) for trial in json.loads(file.read_text())), file.parent)
        for file in files
    ]


def _group(workdir: Path, trials: tuple[Trial, ...]) -> Group:
    names = " ".join(trial.name for trial in trials)
    if len(trials) > 1:  # too long for a folder name
        names = f"{len(trials)}-trials-{hashlib.sha256(names.encode()).hexdigest()[:8]}"
    return Group(trials, workdir / UNFINISHED / names)


MEMORY_SHARE = 0.9
"""Of a device's memory; the rest is for evaluation and fragmentation."""


def trials_per_device(device: Any, compile_one: Callable[[], jax.stages.Compiled]) -> int:
    """How many trials fit into a device, by the compiler's memory analysis of one; at least one.

    One on CPUs: a single trial keeps the cores busy, and vmapped products are not faster.
    """
    # CPUs and a few other platforms report no limit.
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return 1 if limit is None else max(1, int(MEMORY_SHARE * limit) // bytes_of(compile_one()))


def bytes_of(compiled: jax.stages.Compiled) -> int:
    """The memory of a program on each device."""
    analysis: Any = compiled.memory_analysis()
    results = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return int(analysis.argument_size_in_bytes + results + analysis.temp_size_in_bytes)

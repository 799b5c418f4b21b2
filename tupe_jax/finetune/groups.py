"""Which trials train together: those that were begun together, and the rest in equal parts.

A group under way has a folder in `unfinished/` with its trials and its checkpoints; it goes on as
it was begun, whatever number of trials is chosen later.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tupe_jax.finetune.trial import Trial, read_result
from tupe_jax.utils.files import atomic_file

UNFINISHED = "unfinished"
TRIALS_FILE = "trials.json"


@dataclass(frozen=True)
class Group:
    """Trials of one program, and the folder that they have until they are finished."""

    trials: tuple[Trial, ...]
    folder: Path

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.folder / TRIALS_FILE) as unfinished:
            unfinished.write_text(json.dumps([asdict(trial) for trial in self.trials]) + "\n")

    def end(self) -> None:
        shutil.rmtree(self.folder)


def plan_groups(workdir: Path, trials: Sequence[Trial], at_once: int, devices: int) -> list[Group]:
    """The groups that finish these trials, those under way first.

    More trials than devices come in multiples of the devices, so that each has as many.
    """
    unfinished = [trial for trial in trials if read_result(trial, workdir) is None]
    begun_groups = _begun(workdir)
    for group in begun_groups:  # killed after its last result was written
        if all(read_result(trial, workdir) is not None for trial in group.trials):
            group.end()
    groups = [
        group
        for group in begun_groups
        if set(group.trials) <= set(trials) and not set(group.trials).isdisjoint(unfinished)
    ]
    begun = {trial for group in groups for trial in group.trials}
    rest = [trial for trial in unfinished if trial not in begun]
    while rest:
        size = min(at_once, len(rest))
        size -= size % devices if size > devices else 0
        groups.append(_group(workdir, tuple(rest[:size])))
        rest = rest[size:]
    return groups


def _begun(workdir: Path) -> list[Group]:
    files = sorted((workdir / UNFINISHED).glob(f"*/{TRIALS_FILE}"))
    return [
        Group(tuple(Trial(**trial) for trial in json.loads(file.read_text())), file.parent)
        for file in files
    ]


def _group(workdir: Path, trials: tuple[Trial, ...]) -> Group:
    names = " ".join(trial.name for trial in trials)
    if len(trials) > 1:  # too long for a folder
        names = f"{len(trials)}-trials-{hashlib.sha256(names.encode()).hexdigest()[:8]}"
    return Group(trials, workdir / UNFINISHED / names)

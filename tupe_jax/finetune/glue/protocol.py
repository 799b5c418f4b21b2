"""The protocol: every task with every learning rate and seed, in pieces that can be spread out.

A work directory of the protocol holds

    config.json          which trials there should be, of which model, trained how
    <task>/              the work directory of a task, see `run.py`
    shard-<i>-of-<n>/    the same, of a machine's share: shards never write to the same place

Trials are found wherever they are, so work directories of several machines are collected by copying
them together.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tupe_jax.config.loading import PROTOCOL, require_kind
from tupe_jax.config.validation import from_mapping, one_of
from tupe_jax.finetune.config import GlueConfig
from tupe_jax.finetune.results import Trial, TrialResult, read_result, trials_of
from tupe_jax.finetune.run import FREE
from tupe_jax.finetune.tasks import KNOWN_TASKS, FinetuneTask
from tupe_jax.run.preemption import Stop
from tupe_jax.run.resume_checks import (
    CONFIG_FILE,
    check_begun_with,
    check_unchanged,
    read_settings,
)
from tupe_jax.run.shard import ALL_WORK, WorkShard
from tupe_jax.utils.errors import UserError

logger = logging.getLogger(__name__)

FREE_IN_PROTOCOL = (
    "config.tasks",
    "config.learning_rates",
    "config.seeds",
    "name",
    "step",
    *(f"config.{setting}" for setting in FREE),
)
"""What may differ when a work directory is gone on with: more trials may be asked for."""

Train = Callable[[FinetuneTask, Sequence[Trial], Path], Sequence[TrialResult] | None]
"""Finish the trials of a task in its work directory; None: stopped on request."""


@dataclass(frozen=True)
class GlueRecord:
    """What a work directory is about: the trials, and the model."""

    config: GlueConfig
    name: str
    """Of the model, in the table."""
    step: int | None
    """How long it was pre-trained, where that is known."""
    fingerprint: int
    """Of its weights."""


def plan(config: GlueConfig, shard: WorkShard = ALL_WORK) -> dict[str, list[Trial]]:
    """The trials of a shard by task: an even share of every task, so that none gets MNLI alone."""
    trials = trials_of(config.learning_rates, config.seeds)
    cells = [(task, trial) for task in config.tasks for trial in trials]
    mine: dict[str, list[Trial]] = {}
    for task, trial in cells[shard.index :: shard.count]:
        mine.setdefault(task, []).append(trial)
    return mine


def run_protocol(
    record: GlueRecord,
    workdir: Path,
    shard: WorkShard,
    open_task: Callable[[str], FinetuneTask],
    train: Train,
    stop: Stop,
) -> bool:
    """Train what is not finished of a shard; False: stopped on request, saved.

    All tasks are opened before the first is trained on: a missing file is told at once.
    """
    place = shard.folder(workdir)
    _note(record, workdir, place)
    todo = dict(_todo(plan(record.config, shard), workdir, place))
    tasks = _open_all(todo, open_task)
    for name, trials in todo.items():
        if stop.requested:
            return False
        missing = sum(read_result(trial, place / name) is None for trial in trials)
        logger.info("%s: %d trials to train", name, missing)
        if train(tasks[name], trials, place / name) is None:
            return False
    return True


def _open_all(
    names: Iterable[str], open_task: Callable[[str], FinetuneTask]
) -> dict[str, FinetuneTask]:
    """All tasks, or one error that tells what is missing of all."""
    tasks, errors = {}, []
    for name in names:
        try:
            tasks[name] = open_task(name)
        except UserError as error:
            errors.append(str(error))
    if errors:
        raise UserError("; ".join(errors))
    return tasks


def _note(record: GlueRecord, workdir: Path, place: Path) -> None:
    """Write down what the folder is about; a model or settings that do not fit it are refused.

    Nor do they fit if another shard began with others: its trials are in the same table.
    """
    place.mkdir(parents=True, exist_ok=True)
    if not _task_folders(place):
        # No task was begun: the last attempt failed, and its settings may be what was wrong.
        (place / CONFIG_FILE).unlink(missing_ok=True)
    for folder in _begun(workdir):
        if folder != place:
            _check_fits(read_settings(folder / CONFIG_FILE), asdict(record), folder)
    check_begun_with(place, asdict(record), FREE_IN_PROTOCOL)


def _begun(workdir: Path) -> list[Path]:
    """The folders in which training has begun."""
    return [
        folder
        for folder in places(workdir)
        if (folder / CONFIG_FILE).exists() and _task_folders(folder)
    ]


def _task_folders(place: Path) -> list[Path]:
    return [
        file.parent
        for file in place.glob(f"*/{CONFIG_FILE}")
        if not file.parent.name.startswith("shard-")
    ]


def _check_fits(theirs: Mapping[str, Any], ours: Mapping[str, Any], folder: Path) -> None:
    try:
        check_unchanged(theirs, ours, FREE_IN_PROTOCOL)
    except UserError as error:
        raise UserError(f"{folder} does not fit: {error}") from None


def _todo(
    planned: Mapping[str, Sequence[Trial]], workdir: Path, place: Path
) -> Iterator[tuple[str, list[Trial]]]:
    """Tasks that are not finished, with all trials that are not finished elsewhere.

    Those that are finished here stay among them: what is under way began in their company.
    """
    elsewhere = [folder for folder in places(workdir) if folder != place]
    for task, trials in planned.items():
        mine = [trial for trial in trials if _find(task, trial, elsewhere) is None]
        if any(read_result(trial, place / task) is None for trial in mine):
            yield task, mine


def collect(config: GlueConfig, workdir: Path) -> dict[str, list[TrialResult]]:
    """What is finished of all shards, by task."""
    everywhere = places(workdir)
    results = {}
    for task, trials in plan(config).items():
        _check_alike(task, everywhere)
        found = [_find(task, trial, everywhere) for trial in trials]
        results[task] = [result for result in found if result is not None]
    return results


def places(workdir: Path) -> list[Path]:
    """The folders that may hold task folders."""
    return [workdir, *sorted(workdir.glob("shard-*-of-*"))]


def _find(task: str, trial: Trial, folders: Sequence[Path]) -> TrialResult | None:
    results = (read_result(trial, folder / task) for folder in folders)
    return next((result for result in results if result is not None), None)


def _check_alike(task: str, folders: Sequence[Path]) -> None:
    """Trials of different models or settings do not belong into one table."""
    files = [file for folder in folders if (file := folder / task / CONFIG_FILE).exists()]
    begun_with = [read_settings(file) for file in files]
    for file, settings in zip(files, begun_with, strict=True):
        try:
            check_unchanged(begun_with[0], settings, FREE)
        except UserError as error:
            raise UserError(f"{file.parent} does not fit {files[0].parent}: {error}") from None


def read_record(workdir: Path) -> GlueRecord:
    """What the work directory is about; of several shards, the one that asks for most."""
    files = [file for folder in places(workdir) if (file := folder / CONFIG_FILE).exists()]
    if not files:
        raise UserError(f"{workdir}: no {CONFIG_FILE}, so nothing to report; `tupe glue` makes it")
    found = {file: read_settings(file) for file in files}
    begun = _begun(workdir)
    for folder in begun[1:]:
        _check_fits(found[folder / CONFIG_FILE], found[begun[0] / CONFIG_FILE], folder)
    records = [from_mapping(GlueRecord, settings, str(file)) for file, settings in found.items()]
    return max(records, key=lambda record: sum(map(len, plan(record.config).values())))


def glue_config(values: Mapping[str, Any]) -> GlueConfig:
    """The checked config of a protocol; tasks may be written as one text, `cola,rte`."""
    require_kind(values, PROTOCOL)
    given = values.get("tasks", GlueConfig.tasks)
    tasks = [name.strip() for text in given for name in str(text).split(",")]
    config = from_mapping(GlueConfig, {**values, "tasks": tasks}, "config")
    for task in config.tasks:
        one_of(task, KNOWN_TASKS, "task in config.tasks")
    return config

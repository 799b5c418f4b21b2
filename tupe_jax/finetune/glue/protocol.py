"""The GLUE protocol: every task with every learning rate and seed, divided into shards.

A work directory of the protocol holds

    config.json          the planned trials, the model, and the settings of training
    <task>/              the work directory of a task, see `run.py`
    shard-<i>-of-<n>/    the same for a shard; shards never write to the same folder

Finished trials are found in all of these folders, so work directories of several machines are
merged by copying them into one.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tupe_jax.config.loading import PROTOCOL, require_kind
from tupe_jax.config.validation import from_mapping, one_of
from tupe_jax.finetune.config import GlueConfig
from tupe_jax.finetune.results import Trial, TrialResult, read_result, trials_of
from tupe_jax.finetune.run import FREE_IN_FINETUNING
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
from tupe_jax.utils.paths import Path, glob_in

logger = logging.getLogger(__name__)

FREE_IN_PROTOCOL = (
    "config.tasks",
    "config.learning_rates",
    "config.seeds",
    "name",
    "step",
    *(f"config.{setting}" for setting in FREE_IN_FINETUNING),
)
"""Settings that may change when a work directory is resumed, such as more trials."""

Train = Callable[[FinetuneTask, Sequence[Trial], Path], Sequence[TrialResult] | None]
"""Trains the trials of a task in its work directory; None: stopped on request."""


@dataclass(frozen=True)
class GlueRecord:
    """The content of a work directory: the planned trials and the model."""

    config: GlueConfig
    name: str
    """The name of the model in the table."""
    step: int | None
    """The step of the pre-trained checkpoint, if known."""
    fingerprint: int
    """The fingerprint of the model's weights."""


def plan(config: GlueConfig, shard: WorkShard = ALL_WORK) -> dict[str, list[Trial]]:
    """The trials of a shard by task: an equal part of every task, so that MNLI is also divided."""
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
    """Train the unfinished trials of a shard; False: stopped on request, checkpoint saved.

    All tasks are opened before training starts, so that missing files are reported first.
    """
    own_folder = shard.folder(workdir)
    _write_record(record, workdir, own_folder)
    todo = dict(_todo(plan(record.config, shard), workdir, own_folder))
    tasks = _open_all(todo, open_task)
    for name, trials in todo.items():
        if stop.requested:
            return False
        missing = sum(read_result(trial, own_folder / name) is None for trial in trials)
        logger.info("%s: %d trials to train", name, missing)
        if train(tasks[name], trials, own_folder / name) is None:
            return False
    return True


def _open_all(
    names: Iterable[str], open_task: Callable[[str], FinetuneTask]
) -> dict[str, FinetuneTask]:
    """Open all tasks; raise one error that names everything that is missing."""
    tasks, errors = {}, []
    for name in names:
        try:
            tasks[name] = open_task(name)
        except UserError as error:
            errors.append(str(error))
    if errors:
        raise UserError("; ".join(errors))
    return tasks


def _write_record(record: GlueRecord, workdir: Path, own_folder: Path) -> None:
    """Write the settings to the shard's folder; raise if it was started with other ones.

    Also raise if another shard has other settings, because its trials are in the same table.
    """
    own_folder.mkdir(parents=True, exist_ok=True)
    if not _task_folders(own_folder):
        # No task was started: the last attempt failed, perhaps because of its settings.
        (own_folder / CONFIG_FILE).unlink(missing_ok=True)
    for folder in _started(workdir):
        if folder != own_folder:
            _check_match(read_settings(folder / CONFIG_FILE), asdict(record), folder)
    check_begun_with(own_folder, asdict(record), FREE_IN_PROTOCOL)


def _started(workdir: Path) -> list[Path]:
    """The folders in which training has started."""
    return [
        folder
        for folder in shard_folders(workdir)
        if (folder / CONFIG_FILE).exists() and _task_folders(folder)
    ]


def _task_folders(folder: Path) -> list[Path]:
    return [
        file.parent
        for file in glob_in(folder, f"*/{CONFIG_FILE}")
        if not file.parent.name.startswith("shard-")
    ]


def _check_match(theirs: Mapping[str, Any], ours: Mapping[str, Any], folder: Path) -> None:
    try:
        check_unchanged(theirs, ours, FREE_IN_PROTOCOL)
    except UserError as error:
        raise UserError(f"{folder} does not match: {error}") from None


def _todo(
    planned: Mapping[str, Sequence[Trial]], workdir: Path, own_folder: Path
) -> Iterator[tuple[str, list[Trial]]]:
    """Unfinished tasks, with all trials that are not finished in other folders.

    Trials that are finished here are included, because an unfinished group contains them.
    """
    elsewhere = [folder for folder in shard_folders(workdir) if folder != own_folder]
    for task, trials in planned.items():
        mine = [trial for trial in trials if _find(task, trial, elsewhere) is None]
        if any(read_result(trial, own_folder / task) is None for trial in mine):
            yield task, mine


def collect(config: GlueConfig, workdir: Path) -> dict[str, list[TrialResult]]:
    """The finished trials of all shards, by task."""
    everywhere = shard_folders(workdir)
    results = {}
    for task, trials in plan(config).items():
        _check_alike(task, everywhere)
        found = [_find(task, trial, everywhere) for trial in trials]
        results[task] = [result for result in found if result is not None]
    return results


def shard_folders(workdir: Path) -> list[Path]:
    """The folders that may contain task folders."""
    return [workdir, *sorted(glob_in(workdir, "shard-*-of-*"))]


def _find(task: str, trial: Trial, folders: Sequence[Path]) -> TrialResult | None:
    results = (read_result(trial, folder / task) for folder in folders)
    return next((result for result in results if result is not None), None)


def _check_alike(task: str, folders: Sequence[Path]) -> None:
    """Raise if trials of different models or settings would be in one table."""
    files = [file for folder in folders if (file := folder / task / CONFIG_FILE).exists()]
    begun_with = [read_settings(file) for file in files]
    for file, settings in zip(files, begun_with, strict=True):
        try:
            check_unchanged(begun_with[0], settings, FREE_IN_FINETUNING)
        except UserError as error:
            raise UserError(f"{file.parent} does not match {files[0].parent}: {error}") from None


def read_record(workdir: Path) -> GlueRecord:
    """The record of a work directory; of several shards, the one with the most trials."""
    files = [file for folder in shard_folders(workdir) if (file := folder / CONFIG_FILE).exists()]
    if not files:
        raise UserError(f"{workdir}: no {CONFIG_FILE}; start with `tupe glue --checkpoint=DIR`")
    found = {file: read_settings(file) for file in files}
    started = _started(workdir)
    for folder in started[1:]:
        _check_match(found[folder / CONFIG_FILE], found[started[0] / CONFIG_FILE], folder)
    records = [from_mapping(GlueRecord, settings, str(file)) for file, settings in found.items()]
    return max(records, key=lambda record: sum(map(len, plan(record.config).values())))


def glue_config(values: Mapping[str, Any]) -> GlueConfig:
    """The validated config of a protocol; tasks may be one string, `cola,rte`."""
    require_kind(values, PROTOCOL)
    given = values.get("tasks", GlueConfig.tasks)
    tasks = [name.strip() for text in given for name in str(text).split(",")]
    config = from_mapping(GlueConfig, {**values, "tasks": tasks}, "config")
    for task in config.tasks:
        one_of(task, KNOWN_TASKS, "task in config.tasks")
    return config

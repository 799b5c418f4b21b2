"""Executes a study unit by unit. Finished runs are never repeated; a started run resumes.

A work directory holds

    config.json                     the settings of the study; other settings are rejected
    data/                           tokenizer and token sequences of all runs
    runs/<variant>/seed<s>-lr<r>/   one run: pretrain/, finetune/<task>/, and at its end
                                    record.json and matrices.npz
    table.md, table.csv,            made from all records so far
    report.html, loss.png

Work directories of several machines are merged by copying their runs into one.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict

from tupe_jax.ablation.config import AblationConfig
from tupe_jax.ablation.results import FREE_IN_STUDY, RunRecord, StudyRecords, write_record
from tupe_jax.ablation.work_plan import RunKey, Unit, plan, tuning_runs
from tupe_jax.run.preemption import Stop
from tupe_jax.run.resume_checks import CONFIG_FILE, check_begun_with
from tupe_jax.run.shard import WorkShard
from tupe_jax.utils.errors import RetryError
from tupe_jax.utils.paths import Path, glob_in

logger = logging.getLogger(__name__)

MAY_DIFFER = ("variants", "seeds", "learning_rates", "tuning_seed", "equal_flops")
"""May change later, which adds runs; every record holds the settings of its variant."""

RunOne = Callable[[RunKey, bool], RunRecord | None]
"""Executes a run, or only its pre-training if the flag `is_tuning` is set; None: stopped."""


def begin(config: AblationConfig, workdir: Path) -> None:
    """Write the settings to the work directory; raise if it holds other ones."""
    if not any(glob_in(workdir, "data/*")) and not any(glob_in(workdir, "runs/*")):
        # Nothing was computed: the last attempt failed, perhaps because of its settings.
        (workdir / CONFIG_FILE).unlink(missing_ok=True)
    check_begun_with(workdir, asdict(config), (*FREE_IN_STUDY, *MAY_DIFFER))


def run_shard(
    records: StudyRecords,
    shard: WorkShard,
    open_study: Callable[[], RunOne],
    stop: Stop,
    after_run: Callable[[], object],
) -> bool:
    """Execute the unfinished units of a shard; False: stopped on request, state saved."""
    todo = [unit for unit in plan(records.config, shard) if records.finished(unit) is None]
    if not todo:
        return True
    run_one = open_study()
    waiting = []
    for number, unit in enumerate(todo, start=1):
        if stop.requested:
            return False
        key = records.key_of(unit)
        if key is None:
            waiting.append(unit)
            continue
        tuning = " (tuning)" if unit.is_tuning else ""
        logger.info("%d of %d: %s%s", number, len(todo), key, tuning)
        record = run_one(key, unit.is_tuning)
        if record is None:
            return False
        write_record(record, records.workdir / key.folder)
        after_run()
    if waiting:
        raise RetryError(_missing_tuning(records, waiting))
    return True


def _missing_tuning(records: StudyRecords, waiting: Sequence[Unit]) -> str:
    """Which tuning runs of other shards are not finished."""
    missing = [
        str(key)
        for variant in dict.fromkeys(unit.variant for unit in waiting)
        for key in tuning_runs(records.config, variant)
        if records.read(key) is None
    ]
    if not missing:
        return "other shards have finished tuning in the meantime; run this command again"
    return (
        f"this shard needs the learning rates that other shards tune; not finished: "
        f"{'; '.join(missing)}. Run these shards (or copy their folders here), then run this "
        "command again"
    )

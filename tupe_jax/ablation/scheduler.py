"""The work of a study, unit by unit. A finished run is never repeated; one under way goes on.

A work directory holds

    config.json                     what the study was begun with; other settings are refused
    data/                           vocabulary and rows of all runs
    runs/<variant>/seed<s>-lr<r>/   one run: pretrain/, finetune/<task>/, and at its end
                                    record.json and matrices.npz
    table.md, table.csv,            made from the records that are there
    report.html, loss.png

so that work directories of several machines are joined by copying their runs together.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from tupe_jax.ablation.collect import FREE, finished, key_of, read_run
from tupe_jax.ablation.config import AblationConfig
from tupe_jax.ablation.record import RunRecord, write_record
from tupe_jax.ablation.work_plan import RunKey, Unit, plan, tuning_runs
from tupe_jax.finetune.glue.protocol import Shard
from tupe_jax.run.preemption import Stop
from tupe_jax.run.resume_checks import CONFIG_FILE, check_begun_with
from tupe_jax.utils.errors import RetryError

logger = logging.getLogger(__name__)

MAY_DIFFER = ("variants", "seeds", "learning_rates")
"""More may be asked for later; every record tells what its variant was."""

Perform = Callable[[RunKey, bool], RunRecord | None]
"""Do a run, or, if the second is true, only what tuning needs; None: stopped on request."""


def begin(config: AblationConfig, workdir: Path) -> None:
    """Note what a work directory is about; settings that do not fit it are refused."""
    if not any(workdir.glob("data/*")) and not any(workdir.glob("runs/*")):
        # Nothing was made: the last attempt failed, and its settings may be what was wrong.
        (workdir / CONFIG_FILE).unlink(missing_ok=True)
    check_begun_with(workdir, asdict(config), (*FREE, *MAY_DIFFER))


def run_shard(
    config: AblationConfig,
    workdir: Path,
    shard: Shard,
    open_study: Callable[[], Perform],
    stop: Stop,
    after_run: Callable[[], object],
) -> bool:
    """Do what is not done of a shard; False: stopped on request, saved."""
    todo = [unit for unit in plan(config, shard) if finished(config, workdir, unit) is None]
    if not todo:
        return True
    perform = open_study()
    waiting = []
    for number, unit in enumerate(todo, start=1):
        if stop.requested:
            return False
        key = key_of(config, workdir, unit)
        if key is None:
            waiting.append(unit)
            continue
        tuning = " (tuning)" if unit.is_tuning else ""
        logger.info("%d of %d: %s%s", number, len(todo), key, tuning)
        record = perform(key, unit.is_tuning)
        if record is None:
            return False
        write_record(record, workdir / key.folder)
        after_run()
    if waiting:
        raise RetryError(_waits_for(config, workdir, waiting))
    return True


def _waits_for(config: AblationConfig, workdir: Path, waiting: Sequence[Unit]) -> str:
    """Which tuning of other shards is not done."""
    missing = [
        str(key)
        for variant in dict.fromkeys(unit.variant for unit in waiting)
        for key in tuning_runs(config, variant)
        if read_run(config, workdir, key) is None
    ]
    if not missing:
        return "other shards have chosen the learning rates meanwhile: start this again"
    return (
        f"learning rates are chosen when other shards have finished {'; '.join(missing)}: run "
        "those (or copy their folders here), then start this again"
    )

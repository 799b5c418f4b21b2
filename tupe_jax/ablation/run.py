"""The work of a study, unit by unit. A finished run is never repeated; one under way goes on.

A work directory holds

    config.json                     what the study was begun with; other settings are refused
    data/                           vocabulary and rows of all runs
    runs/<variant>/seed<s>-lr<r>/   one run: pretrain/, finetune/<task>/, and at its end
                                    record.json and matrices.npz
    table.md, table.csv             made from the records that are there

so that work directories of several machines are joined by copying their runs together.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from tupe_jax.ablation.collect import FREE, finished, key_of, read_run, run_settings
from tupe_jax.ablation.config import AblationConfig, run_config
from tupe_jax.ablation.downstream import Tasks, finetune_all, open_tasks
from tupe_jax.ablation.measure import measure
from tupe_jax.ablation.plan import RunKey, Unit, plan, tuning_runs
from tupe_jax.ablation.record import RunRecord, write_record
from tupe_jax.ablation.shared_data import SharedData, make_shared_data
from tupe_jax.config import Config
from tupe_jax.errors import StartAgainError
from tupe_jax.finetune.glue import Shard
from tupe_jax.model.heads import MaskedLM
from tupe_jax.parallel.processes import say
from tupe_jax.pretrained import load_pretrained
from tupe_jax.training.agreed_stop import Stop
from tupe_jax.training.changed_config import check_begun_with
from tupe_jax.training.loop import DivergedError, pretrain
from tupe_jax.training.metrics import METRICS_FILE, read_metrics

MAY_GROW = ("variants", "seeds", "learning_rates")
"""More of these may be asked for later; each record tells what its variant was."""
PRETRAIN_FOLDER, FINETUNE_FOLDER = "pretrain", "finetune"


@dataclass(frozen=True)
class Study:
    """What the runs of a study share."""

    config: AblationConfig
    workdir: Path
    data: SharedData
    tasks: Tasks
    stop: Stop


def begin(config: AblationConfig, workdir: Path) -> None:
    """Note what a work directory is about; settings that do not fit it are refused."""
    check_begun_with(workdir, asdict(config), (*FREE, *MAY_GROW))


def run_shard(
    config: AblationConfig, workdir: Path, shard: Shard, stop: Stop, after_run: Callable[[], None]
) -> bool:
    """Do what is not done of a shard; False: stopped on request, saved."""
    todo = [unit for unit in plan(config, shard) if finished(config, workdir, unit) is None]
    if not todo:
        return True
    tasks = open_tasks(config.downstream)
    data = make_shared_data(config.pretrain, workdir)
    study = Study(config, workdir, data, tasks, stop)
    waiting = []
    for number, unit in enumerate(todo, start=1):
        if stop.requested:
            return False
        key = key_of(config, workdir, unit)
        if key is None:
            waiting.append(unit)
            continue
        say(f"{number} of {len(todo)}: {key}{' (tuning)' if unit.is_tuning else ''}")
        record = _tune(study, key) if unit.is_tuning else _whole(study, key)
        if record is None:
            return False
        write_record(record, workdir / key.folder)
        jax.clear_caches()  # no later run has the same programs
        after_run()
    if waiting:
        raise StartAgainError(_waits_for(config, workdir, waiting))
    return True


def _waits_for(config: AblationConfig, workdir: Path, waiting: list[Unit]) -> str:
    """Which tuning of other shards is not done."""
    missing = [
        str(key)
        for variant in dict.fromkeys(unit.variant for unit in waiting)
        for key in tuning_runs(config, variant)
        if read_run(config, workdir, key) is None
    ]
    return (
        f"{len(waiting)} runs wait for learning rates that other shards are to find: "
        f"{'; '.join(missing)}. When those have run (or their folders are copied here), start this "
        "again"
    )


def _tune(study: Study, key: RunKey) -> RunRecord | None:
    """Pre-train, no more; None: stopped on request."""
    folder = study.workdir / key.folder / PRETRAIN_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    config = study.data.given_to(_config_of(study, key))
    diverged = False
    try:
        if not pretrain(config, folder, study.stop).finished:
            return None
    except DivergedError as error:
        say(f"{key}: {error}")
        diverged = True
    return RunRecord(
        variant=key.variant,
        seed=key.seed,
        learning_rate=key.learning_rate,
        settings=run_settings(study.config, key),
        data=study.data.digest(),
        parameters=_parameters(config),
        tokens_per_step=config.train.batch_size * config.data.length,
        validation=_curve(folder),
        diverged=diverged,
    )


def _whole(study: Study, key: RunKey) -> RunRecord | None:
    """Pre-train, fine-tune, measure; None: stopped on request."""
    record = read_run(study.config, study.workdir, key) or _tune(study, key)
    if record is None or record.diverged:
        return record
    folder = study.workdir / key.folder
    pretrained = load_pretrained(folder / PRETRAIN_FOLDER)
    scores = finetune_all(
        study.config, pretrained, study.tasks, folder / FINETUNE_FOLDER, study.stop
    )
    if scores is None:
        return None
    found: dict[str, Any] = measure(study.config.measure, pretrained)
    return replace(record, scores=scores, **found)


def _config_of(study: Study, key: RunKey) -> Config:
    variant = study.config.variant(key.variant)
    return run_config(study.config, variant, key.seed, key.learning_rate)


def _curve(folder: Path) -> tuple[tuple[int, float], ...]:
    lines = read_metrics(folder / METRICS_FILE)
    losses = [(int(line["step"]), line["valid_loss"]) for line in lines if "valid_loss" in line]
    return tuple((step, math.inf if loss is None else loss) for step, loss in losses)


def _parameters(config: Config) -> int:
    model = nnx.eval_shape(lambda: MaskedLM(config.model, rngs=nnx.Rngs(0)))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))

"""One run: pre-train, fine-tune, measure. Each part goes on where it was when it was killed."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
from flax import nnx

from tupe_jax.ablation.collect import (
    check_judged_on,
    check_trained_on,
    collect,
    read_run,
    run_settings,
)
from tupe_jax.ablation.config import AblationConfig, run_config
from tupe_jax.ablation.downstream import Tasks, Tuned, finetune_all, open_tasks
from tupe_jax.ablation.judged_on import digests
from tupe_jax.ablation.measure import measure, pairs_to_probe_with, probe
from tupe_jax.ablation.record import ProbeScore, RunRecord
from tupe_jax.ablation.shared_data import SharedData, make_shared_data
from tupe_jax.ablation.work_plan import RunKey
from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.inference.loading import load
from tupe_jax.lab.nli_pairs import InferencePair
from tupe_jax.model.heads import MaskedLM
from tupe_jax.run.preemption import Stop
from tupe_jax.training.loop import DivergedError, pretrain
from tupe_jax.training.monitoring.metrics import METRICS_FILE, read_metrics
from tupe_jax.training.train_step import check_settings
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import exclusive_lock

logger = logging.getLogger(__name__)

PRETRAIN_FOLDER, FINETUNE_FOLDER, LOCK_FILE = "pretrain", "finetune", "run.lock"


@dataclass(frozen=True)
class Performer:
    """Does runs of a study; holds what they share."""

    config: AblationConfig
    workdir: Path
    data: SharedData
    tasks: Tasks
    pairs: Sequence[InferencePair]
    """Of which the probes are made."""
    stop: Stop

    def __call__(self, key: RunKey, is_tuning: bool) -> RunRecord | None:
        """The record of a run, for tuning of its pre-training only; None: stopped on request."""
        folder = self.workdir / key.folder
        folder.mkdir(parents=True, exist_ok=True)
        refusal = f"another process does this run: {folder}; give each of them another --shard"
        with exclusive_lock(folder / LOCK_FILE, UserError(refusal)):
            return self._do(key, is_tuning)

    def _do(self, key: RunKey, is_tuning: bool) -> RunRecord | None:
        jax.clear_caches()  # programs of the run before, which would only fill the memory
        record = read_run(self.config, self.workdir, key) or self._pretrain(key)
        if record is None or record.diverged or record.is_measured or is_tuning:
            return record
        folder = self.workdir / key.folder
        pretrained = load(folder / PRETRAIN_FOLDER)
        tuned = finetune_all(
            self.config, pretrained, self.tasks, folder / FINETUNE_FOLDER, self.stop
        )
        if tuned is None:
            return None
        found: dict[str, Any] = measure(self.config.measure, pretrained)
        return replace(
            record,
            scores={task: result.score for task, result in tuned.items()},
            probes=self._probe(tuned),
            judged_on=digests(self.tasks, self.pairs),
            **found,
        )

    def _probe(self, tuned: Mapping[str, Tuned]) -> dict[str, ProbeScore]:
        task = self.config.measure.probe_task
        if not task:
            return {}
        return probe(tuned[task].folder, self.pairs, self.config.downstream.finetune.length)

    def _pretrain(self, key: RunKey) -> RunRecord | None:
        folder = self.workdir / key.folder / PRETRAIN_FOLDER
        folder.mkdir(exist_ok=True)
        variant = self.config.variant(key.variant)
        config = run_config(self.config, variant, key.seed, key.learning_rate)
        diverged = False
        try:
            if not pretrain(self.data.given_to(config), folder, self.stop).finished:
                return None
        except DivergedError as error:
            logger.warning("%s: %s", key, error)
            diverged = True
        return RunRecord(
            variant=key.variant,
            seed=key.seed,
            learning_rate=key.learning_rate,
            settings=run_settings(self.config, key),
            data=self.data.digest(),
            parameters=_parameters(config),
            validation=_curve(folder),
            diverged=diverged,
        )


def open_study(config: AblationConfig, workdir: Path, stop: Stop) -> Performer:
    """Make or open all that runs share, so that what is missing is told before any training."""
    for variant in config.variants:
        check_settings(
            run_config(config, variant, config.seeds[0], config.learning_rates[0]),
            make_mesh(config.pretrain.mesh),
        )
    tasks, pairs = open_tasks(config.downstream), pairs_to_probe_with(config.measure)
    data = make_shared_data(config.pretrain, workdir)
    there = collect(config, workdir).records
    check_trained_on(data.digest(), data.rows, there, workdir)
    check_judged_on(digests(tasks, pairs), "those that are here now", there, workdir)
    return Performer(config, workdir, data, tasks, pairs, stop)


@contextmanager
def compiled_once() -> Iterator[None]:
    """Keep compiled programs meanwhile: the seeds of a variant share most of them.

    Not in the work directory: what one CPU compiles, another one may not be able to run.
    """
    setting = "jax_compilation_cache_dir"
    if jax.config.values[setting]:  # they are kept already, and for longer
        yield
        return
    with TemporaryDirectory() as folder:
        jax.config.update(setting, folder)
        try:
            yield
        finally:
            jax.config.update(setting, None)


def _curve(folder: Path) -> tuple[tuple[int, float], ...]:
    lines = read_metrics(folder / METRICS_FILE)
    losses = [(int(line["step"]), line["valid_loss"]) for line in lines if "valid_loss" in line]
    return tuple((step, math.inf if loss is None else loss) for step, loss in losses)


def _parameters(config: Config) -> int:
    model = nnx.eval_shape(lambda: MaskedLM(config.model, rngs=nnx.Rngs(0)))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))

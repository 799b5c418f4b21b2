"""One run of a study: pre-train, fine-tune, measure. Each stage resumes after a kill."""

import hashlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.ablation.config import AblationConfig, DownstreamConfig, run_config
from tupe_jax.ablation.measure import measure, pairs_to_probe_with, probe
from tupe_jax.ablation.results import (
    BiasSizes,
    ProbeScore,
    RunRecord,
    StudyRecords,
    TaskScore,
    digests,
    run_settings,
)
from tupe_jax.ablation.work_plan import RunKey
from tupe_jax.config.schema import Config
from tupe_jax.data.labelled.glue import TASKS
from tupe_jax.data.pretraining.readers import TokenShards
from tupe_jax.data.pretraining.token_shards import INDEX_FILE, read_index
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.finetune.glue.aggregation import Moment, RateScore, summarize_task
from tupe_jax.finetune.results import Trial, TrialResult, trials_of
from tupe_jax.finetune.run import finetune
from tupe_jax.finetune.tasks import FinetuneTask, open_task
from tupe_jax.inference.loading import load
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.lab.nli_pairs import NliPair
from tupe_jax.objectives.registry import make_objective
from tupe_jax.run.preemption import Stop
from tupe_jax.training.dataset import DATA_FOLDER, PREPARED_FOLDER, make_dataset
from tupe_jax.training.loop import DivergedError, pretrain
from tupe_jax.training.monitoring.metrics import METRICS_FILE, read_metrics
from tupe_jax.training.monitoring.position_bias import sizes_in
from tupe_jax.training.train_step import check_settings
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file, exclusive_lock
from tupe_jax.utils.paths import Path, storage_path

logger = logging.getLogger(__name__)

PRETRAIN_FOLDER, FINETUNE_FOLDER, LOCK_FILE = "pretrain", "finetune", "run.lock"
CPU_TIME_FILE = "cpu_seconds"

Tasks = Mapping[str, FinetuneTask]


@dataclass(frozen=True)
class SharedData:
    """Tokenizer and token sequences that all runs of a study read."""

    vocabulary: Path
    rows: Path

    def digest(self) -> str:
        """Identifies the tokenizer and the sequences."""
        files = [self.vocabulary, self.rows / INDEX_FILE]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    def held_out(self, count: int) -> NDArray[np.int32]:
        """The first sequences of the validation text, in its order."""
        index = read_index(self.rows)
        shards = index.splits["validation"].shards
        rows = TokenShards(self.rows, shards, index.record)
        return rows.read(range(min(count, sum(shard.rows for shard in shards))))["tokens"]

    def given_to(self, config: Config) -> Config:
        """The config of a run that reads this data."""
        data = replace(config.data, vocabulary=str(self.vocabulary), prepared=str(self.rows))
        return replace(config, data=data)


def make_shared_data(config: Config, workdir: Path) -> SharedData:
    """Create what is missing in the work directory."""
    # Shards may start at the same time: the first one creates the data, the others wait for it.
    with exclusive_lock(workdir / "data.lock"):
        vocabulary = make_dataset(config, workdir, None)
    return SharedData(
        vocabulary, storage_path(config.data.prepared or workdir / DATA_FOLDER / PREPARED_FOLDER)
    )


@dataclass(frozen=True)
class StudyRunner:
    """Executes the runs of a study; holds what they share."""

    records: StudyRecords
    data: SharedData
    tasks: Tasks
    pairs: Sequence[NliPair]
    """The sentence pairs that the probes change."""
    stop: Stop

    @property
    def config(self) -> AblationConfig:
        return self.records.config

    def __call__(self, key: RunKey, is_tuning: bool) -> RunRecord | None:
        """The record of a run; a tuning run is only pre-trained. None: stopped on request."""
        folder = self._folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        refusal = f"{folder}: another process executes this run; give each process its own --shard"
        with exclusive_lock(folder / LOCK_FILE, UserError(refusal)):
            begun = time.process_time()
            try:
                record = self._run(key, is_tuning)
            finally:
                seconds = _add_cpu_time(folder, time.process_time() - begun)
            return record and replace(record, cpu_seconds=round(seconds, 1))

    def _folder(self, key: RunKey) -> Path:
        return self.records.workdir / key.folder

    def _run(self, key: RunKey, is_tuning: bool) -> RunRecord | None:
        jax.clear_caches()  # the previous run's programs would only fill the memory
        record = self.records.read(key)
        if record is not None and (record.diverged or record.is_measured or is_tuning):
            return record
        # A tuning run that is reported, too, has a record already. An archived one has no model.
        record = self._pretrain(key)
        if record is None or record.diverged or is_tuning:
            return record
        folder = self._folder(key)
        pretrained = load(folder / PRETRAIN_FOLDER)
        tuned = finetune_all(
            self.config, pretrained, self.tasks, folder / FINETUNE_FOLDER, self.stop
        )
        if tuned is None:
            return None
        held_out_NxS = self.data.held_out(self.config.pretrain.eval.rows)
        found: dict[str, Any] = measure(self.config.measure, pretrained, held_out_NxS)
        return replace(
            record,
            scores={task: result.score for task, result in tuned.items()},
            probes=self._probe(tuned),
            judged_on=digests(self.tasks, self.pairs),
            **found,
        )

    def _probe(self, tuned: Mapping[str, "FinetunedTask"]) -> dict[str, ProbeScore]:
        task = self.config.measure.probe_task
        if not task:
            return {}
        return probe(tuned[task].folder, self.pairs, self.config.downstream.finetune.length)

    def _pretrain(self, key: RunKey) -> RunRecord | None:
        folder = self._folder(key) / PRETRAIN_FOLDER
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
            bias_sizes=_bias_sizes(folder),
            diverged=diverged,
        )


def open_study(records: StudyRecords, stop: Stop) -> StudyRunner:
    """Create or open all that runs share, so that missing files are reported before training."""
    config, workdir = records.config, records.workdir
    for variant in config.variants:
        check_settings(
            run_config(config, variant, config.seeds[0], config.learning_rates[0]),
            make_mesh(config.pretrain.mesh),
        )
    tasks, pairs = open_tasks(config.downstream), pairs_to_probe_with(config.measure)
    data = make_shared_data(config.pretrain, workdir)
    finished = records.collect().records
    records.check_trained_on(data.digest(), data.rows, finished)
    records.check_evaluated_on(digests(tasks, pairs), "the current ones", finished)
    return StudyRunner(records, data, tasks, pairs, stop)


def _add_cpu_time(folder: Path, seconds: float) -> float:
    """Add to the time that earlier processes spent on the run, and return the sum."""
    file = folder / CPU_TIME_FILE
    if file.exists():
        seconds += float(file.read_text())
    with atomic_file(file) as unfinished:
        unfinished.write_text(str(seconds))
    return seconds


def _curve(folder: Path) -> tuple[tuple[int, float], ...]:
    lines = read_metrics(folder / METRICS_FILE)
    losses = [(int(line["step"]), line["valid_loss"]) for line in lines if "valid_loss" in line]
    return tuple((step, math.inf if loss is None else loss) for step, loss in losses)


def _bias_sizes(folder: Path) -> dict[str, tuple[BiasSizes, ...]]:
    found: dict[str, list[BiasSizes]] = {}
    for line in read_metrics(folder / METRICS_FILE):
        for part, sizes_H in sizes_in(line).items():
            found.setdefault(part, []).append((int(line["step"]), sizes_H))
    return {part: tuple(sizes) for part, sizes in found.items()}


def _parameters(config: Config) -> int:
    """The number of trained parameters of all networks."""
    module = nnx.eval_shape(lambda: make_objective(config).build(nnx.Rngs(0)))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(module, nnx.Param)))


def open_tasks(config: DownstreamConfig) -> Tasks:
    """All tasks of a study, opened before pre-training so that missing files show up early."""
    data_dir = storage_path(config.data_dir) if config.data_dir else None
    return {
        name: open_task(
            name,
            data_dir=data_dir if name in TASKS else None,
            train_examples=None if name in TASKS else config.train_examples,
            dev_examples=None if name in TASKS else config.dev_examples,
        )
        for name in config.tasks
    }


@dataclass(frozen=True)
class FinetunedTask:
    """The score of a run on a task, and the folder of a model that reached it."""

    score: TaskScore
    folder: Path


def finetune_all(
    config: AblationConfig, pretrained: TrainedModel, tasks: Tasks, folder: Path, stop: Stop
) -> dict[str, FinetunedTask] | None:
    """Fine-tune on every task of the study; None: stopped on request."""
    found = {}
    trials = trials_of(config.downstream.learning_rates, config.downstream.seeds)
    for name, task in tasks.items():
        is_probed = name == config.measure.probe_task  # probes need the weights
        settings = config.downstream.finetune
        settings = replace(settings, keep_weights=settings.keep_weights or is_probed)
        results = finetune(settings, pretrained, task, trials, folder / name, stop)
        if results is None:
            return None
        found[name] = _protocol_score(task, results, folder / name)
    return found


def _protocol_score(
    task: FinetuneTask, results: Sequence[TrialResult], folder: Path
) -> FinetunedTask:
    """The paper's protocol: the learning rate with the best median over seeds."""
    split, metric = task.chosen_by

    def reported(moment: Moment) -> RateScore:
        score = summarize_task(results, metric, moment, len(results)).reported(split)
        assert score is not None, "every trial has a score"
        return score

    best, last = reported(lambda r: r.best), reported(lambda r: r.last)
    first = Trial(best.learning_rate, next(iter(best.by_seed)))
    return FinetunedTask(TaskScore(metric, best.median, last.median), folder / first.name)

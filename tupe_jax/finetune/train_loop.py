"""The training loop of a group of trials that share a program.

Resuming is exact, as in pre-training: randomness and the order of the examples are functions of the
trial's seed and the step.
"""

import hashlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import jax
import numpy as np

from tupe_jax.checkpointing.manager import FOLDER as CHECKPOINTS
from tupe_jax.checkpointing.manager import Checkpoints
from tupe_jax.config.schema import CheckpointConfig
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.finetune.data import EncodedSplit, TrainBatches
from tupe_jax.finetune.evaluation import Predictions, predict, scores_of_trials
from tupe_jax.finetune.groups import Group
from tupe_jax.finetune.results import (
    Evaluation,
    Trial,
    TrialResult,
    evaluation_from_json,
    evaluation_to_json,
)
from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.finetune.vmapped import Programs
from tupe_jax.model.params import ParamArrays
from tupe_jax.run.preemption import Stop
from tupe_jax.training.monitoring.progress import Progress
from tupe_jax.training.train_state import Params

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedTask:
    """A task as token sequences, and the possible lengths of its batches."""

    task: FinetuneTask
    train: EncodedSplit
    dev: Mapping[str, EncodedSplit]
    test: Mapping[str, EncodedSplit]
    buckets: tuple[int, ...]

    @property
    def digest(self) -> str:
        """Identifies the train and dev splits; no score depends on the test splits."""
        splits = {"train": self.train, **self.dev}
        digests = " ".join(f"{name} {split.digest}" for name, split in splits.items())
        return hashlib.sha256(digests.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Schedule:
    """The length of a trial, and the steps after which it is evaluated."""

    steps_per_epoch: int
    epochs: int
    evaluations_per_epoch: int

    @property
    def total_steps(self) -> int:
        return self.steps_per_epoch * self.epochs

    @property
    def evaluations(self) -> frozenset[int]:
        """Evenly spaced, the last one at the end; fewer if an epoch has too few steps."""
        count = self.epochs * self.evaluations_per_epoch
        return frozenset(math.ceil(n * self.total_steps / count) for n in range(1, count + 1))


@dataclass(frozen=True)
class GroupResult:
    """The results of trained trials, and the predictions of their best weights."""

    results: list[TrialResult]
    best_params: Params
    """In host memory, with a leading axis of trials."""
    predictions: dict[str, Predictions]


def train_group(
    config: FinetuneConfig,
    data: EncodedTask,
    schedule: Schedule,
    programs: Programs,
    pretrained: ParamArrays,
    group: Group,
    stop: Stop,
) -> GroupResult | None:
    """Train to the end, from the group's checkpoint if there is one; None: stopped, saved."""
    with ExitStack() as closing:  # a pending save is completed in any case
        return _train_group(config, data, schedule, programs, pretrained, group, stop, closing)


def _train_group(
    config: FinetuneConfig,
    data: EncodedTask,
    schedule: Schedule,
    programs: Programs,
    pretrained: ParamArrays,
    group: Group,
    stop: Stop,
    closing: ExitStack,
) -> GroupResult | None:
    # ------------------------------------------------------------------ resume or start
    trials, choices = group.trials, programs.choices(group.trials)
    checkpoints = Checkpoints(group.folder / CHECKPOINTS, CheckpointConfig(keep=1, keep_best=False))
    closing.callback(checkpoints.close)
    restored = checkpoints.restore(programs.abstract_state(choices, pretrained))
    if restored is None:
        state, step = programs.first_state(choices, pretrained), 0
        evaluations: list[list[Evaluation]] = [[] for _ in trials]
    else:
        state, step = restored.state, restored.step
        evaluations = [
            [evaluation_from_json(values) for values in of_trial]
            for of_trial in restored.data["evaluations"]
        ]
    stop.has_state = True
    batches = TrainBatches(data.train, [t.seed for t in trials], config.batch_size, data.buckets)
    progress = Progress(schedule.total_steps, start=step)
    closing.callback(progress.close)
    saved_at = time.monotonic()

    def save() -> None:
        nonlocal saved_at
        checkpoints.save(
            step,
            state,
            data={"evaluations": [[evaluation_to_json(e) for e in of] for of in evaluations]},
            config={},
            vocabulary=b"",
            force=True,
        )
        saved_at = time.monotonic()

    def predictions_of(
        params: Params, splits: Mapping[str, EncodedSplit]
    ) -> dict[str, Predictions] | None:
        """None if a stop was requested."""
        return predict(programs, params, data.task, splits, config.batch_size, data.buckets, stop)

    def evaluated() -> int:
        """The step of the last evaluation."""
        return evaluations[0][-1].step if evaluations[0] else 0

    def evaluate() -> None:
        """Score the trials; after a stop request the resumed run does it."""
        nonlocal state
        predictions = predictions_of(state.params, data.dev)
        if predictions is None:
            return
        loss_T = jax.device_get(state.loss_sum) / (step - evaluated())
        scores_T = scores_of_trials(data.task, data.dev, predictions)
        epoch = step / schedule.steps_per_epoch
        for of_trial, scores, loss in zip(evaluations, scores_T, loss_T, strict=True):
            of_trial.append(Evaluation(step, epoch, scores, float(loss)))
        is_best_T = [best_of(data.task, of_trial) is of_trial[-1] for of_trial in evaluations]
        state = programs.after_evaluation(state, np.array(is_best_T))
        logger.info("%s", _report(data.task, trials, evaluations))

    # ------------------------------------------------------------------ train
    previous: jax.Array | None = None
    while True:
        if step in schedule.evaluations and evaluated() < step:
            evaluate()
        if step > 0 and time.monotonic() - saved_at >= config.save_seconds:
            save()
        if step == schedule.total_steps or stop.requested:
            break
        state, loss_T = programs.train(state, choices, batches(step))
        step += 1
        # One step late: the devices stay busy, and the host is never far ahead.
        jax.block_until_ready(previous)
        previous = loss_T
        progress.advance(step)

    # ------------------------------------------------------------------ finish, or stop on request
    predictions = None
    if evaluated() == schedule.total_steps:
        predictions = predictions_of(state.best_params, {**data.dev, **data.test})
    if predictions is None:
        if step > 0:
            save()
        return None
    results = [
        TrialResult(trial, tuple(of_trial), best_of(data.task, of_trial))
        for trial, of_trial in zip(trials, evaluations, strict=True)
    ]
    return GroupResult(results, jax.device_get(state.best_params), predictions)


def best_of(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> Evaluation:
    """The first evaluation with the highest score; NaN is lower than any number."""
    split, metric = task.chosen_by

    def score(evaluation: Evaluation) -> float:
        value = evaluation.scores[split][metric]
        return -math.inf if math.isnan(value) else value

    return max(evaluations, key=score)


def _report(
    task: FinetuneTask, trials: Sequence[Trial], evaluations: Sequence[Sequence[Evaluation]]
) -> str:
    """The last evaluation; for several trials the lowest and the highest value."""
    split, metric = task.chosen_by
    last = [of_trial[-1] for of_trial in evaluations]

    def span(values: Sequence[float]) -> str:
        low, high = min(values), max(values)
        return f"{low:.3f}" if len(values) == 1 else f"{low:.3f} to {high:.3f}"

    who = trials[0].name if len(trials) == 1 else f"{len(trials)} trials"
    return (
        f"{task.name}, {who}, epoch {last[0].epoch:.3g}: "
        f"training loss {span([e.train_loss for e in last])}, "
        f"{split} {metric} {span([e.scores[split][metric] for e in last])}"
    )

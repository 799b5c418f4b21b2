"""Fine-tuning on one task: trains the unfinished trials, group by group.

A work directory holds the trials of a task (`results.py` describes a finished one) and

    config.json      the settings it was started with; other settings are rejected
    unfinished/      a folder for each unfinished group: its trials and checkpoints
"""

import functools
import logging
import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import jax
import numpy as np
from flax import nnx

from tupe_jax.config.loading import load_config, nearest_config
from tupe_jax.config.schema import ModelConfig
from tupe_jax.data.labelled.example import Example
from tupe_jax.finetune.classifier import TRAINED_PARTS, Classifier
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.finetune.data import EncodedSplit, TrainBatches, bucket_lengths, encode_split
from tupe_jax.finetune.groups import Group, plan_groups, trials_per_device
from tupe_jax.finetune.results import (
    PREDICTIONS_FOLDER,
    Trial,
    TrialResult,
    evaluation_to_json,
    read_result,
    write_predictions,
    write_result,
)
from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.finetune.train_loop import EncodedTask, GroupResult, Schedule, train_group
from tupe_jax.finetune.vmapped import Programs, make_programs, mesh_for, unit_optimizer
from tupe_jax.inference.loading import MODEL_FOLDER
from tupe_jax.inference.model_card import save_model
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.interop.model_folder import HeadMetadata, ModelMetadata
from tupe_jax.model.attention_backend import attention_choices, platform_of
from tupe_jax.model.params import ParamArrays, arrays_of
from tupe_jax.model.positions import encodings
from tupe_jax.run.preemption import Stop
from tupe_jax.run.resume_checks import check_begun_with, flattened
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path

logger = logging.getLogger(__name__)

SHIPPED_CONFIGS = ("finetune", "finetune:quick")

WITHOUT_EFFECT = (
    "at_once",
    "keep_weights",
    "optimizer.peak_learning_rate",  # each trial has its own
    "save_seconds",
)
"""Settings that do not change a trial's numbers."""

FREE_IN_FINETUNING = (
    *(f"finetune.{name}" for name in WITHOUT_EFFECT),
    "model.layer_loop",
    "model.remat",
)
"""Settings that may change when a work directory is resumed."""


def finetune(
    config: FinetuneConfig,
    pretrained: TrainedModel,
    task: FinetuneTask,
    trials: Sequence[Trial],
    workdir: Path,
    stop: Stop,
) -> list[TrialResult] | None:
    """Train the unfinished trials of one task; None: stopped on request, checkpoint saved."""
    # ------------------------------------------------------------------ model, data
    model = finetuned_model_config(config, pretrained.config)
    classifier = Classifier(model, task.name, task.outputs, task.is_regression)
    weights = {} if config.from_scratch else _parts(pretrained.params, "encoder", "pooler")
    data = _encode(config, model, pretrained, task)
    begun_with = {
        "finetune": asdict(config),
        "model": asdict(model),
        "task": {"name": task.name, "rows": data.digest},
        "pretrained": {"fingerprint": 0 if config.from_scratch else pretrained.fingerprint},
    }

    # ------------------------------------------------------------------ programs
    schedule = Schedule(
        steps_per_epoch=math.ceil(len(data.train) / config.batch_size),
        epochs=config.epochs or task.epochs,
        evaluations_per_epoch=config.evaluations_per_epoch,
    )
    optimizer = unit_optimizer(
        config.optimizer,
        total_steps=schedule.total_steps,
        batch_size=config.batch_size,
        sequences_per_epoch=len(data.train),
    )
    # Not earlier: rejected settings must not be written to the work directory.
    workdir.mkdir(parents=True, exist_ok=True)
    check_begun_with(workdir, begun_with, FREE_IN_FINETUNING)
    devices = jax.local_devices()

    @functools.cache  # groups of one size share their compiled programs
    def programs_for(count: int) -> Programs:
        return make_programs(classifier, optimizer, mesh_for(count, devices))

    def compile_one() -> jax.stages.Compiled:
        """The training step of a single trial with the longest sequences."""
        programs = programs_for(1)
        choices = programs.choices(trials[:1])
        batch = TrainBatches(data.train, [0], config.batch_size, data.buckets[-1:])(0)
        state = programs.abstract_state(choices, weights)
        return programs.train.lower(state, choices, batch).compile()

    at_once = config.at_once or len(devices) * trials_per_device(devices[0], compile_one)

    # ------------------------------------------------------------------ train
    groups = plan_groups(workdir, trials, at_once, len(devices))
    if groups:
        logger.info("%s", _announcement(data, schedule, groups, pretrained))
        choices = attention_choices(model, platform_of(devices[0]), data.buckets[-1])
        for choice in dict.fromkeys(choices.values()):
            logger.info("%s", choice)
    for group in groups:
        if stop.requested:
            return None
        group.begin()
        programs = programs_for(len(group.trials))
        outcome = train_group(config, data, schedule, programs, weights, group, stop)
        if outcome is None:
            return None
        for number, result in enumerate(outcome.results):
            if read_result(result.trial, workdir) is None:
                _finish(config, classifier, pretrained, task, outcome, number, workdir)
        group.end()
    finished = (read_result(trial, workdir) for trial in trials)
    return [result for result in finished if result is not None]


def finetuned_model_config(config: FinetuneConfig, pretrained: ModelConfig) -> ModelConfig:
    """The pre-trained model's config with the dropout of fine-tuning."""
    if config.dropout < 0:
        return pretrained
    return replace(pretrained, dropout=config.dropout, attention_dropout=config.dropout)


def _encode(
    config: FinetuneConfig, model: ModelConfig, pretrained: TrainedModel, task: FinetuneTask
) -> EncodedTask:
    limits = [encoding.longest for encoding in encodings(model).values() if encoding.longest]
    if config.length > min(limits, default=config.length):
        raise UserError(
            f"finetune.length={config.length} is longer than the model's position.max_length="
            f"{min(limits)}; set the config's length to {min(limits)}"
        )

    def encoded(examples: Sequence[Example]) -> EncodedSplit:
        return encode_split(examples, pretrained.tokenizer, config.length, task.score_scale)

    train = encoded(task.train)
    dev = {split: encoded(examples) for split, examples in task.dev.items()}
    test = {split: encoded(examples) for split, examples in task.test.items()}
    longest = max(split.longest for split in (train, *dev.values(), *test.values()))
    return EncodedTask(task, train, dev, test, bucket_lengths(model, config.length, longest))


def _finish(
    config: FinetuneConfig,
    classifier: Classifier,
    pretrained: TrainedModel,
    task: FinetuneTask,
    outcome: GroupResult,
    number: int,
    workdir: Path,
) -> None:
    """Write the folder of one trial of a group; its result comes last."""
    result = outcome.results[number]
    folder = workdir / result.trial.name
    for split, predictions_TxN in outcome.predictions.items():
        write_predictions(folder / PREDICTIONS_FOLDER, task, split, predictions_TxN[number])
    if config.keep_weights and not (folder / MODEL_FOLDER).exists():
        before = (
            arrays_of(classifier.create(result.trial.seed))
            if config.from_scratch
            else pretrained.params
        )
        untrained = {path: a for path, a in before.items() if path[0] not in TRAINED_PARTS}
        best = {
            tuple(map(str, path)): np.asarray(param[...][number])
            for path, param in nnx.to_flat_state(outcome.best_params)
        }
        metadata = ModelMetadata() if config.from_scratch else pretrained.metadata
        head = _head_metadata(config, task, result, pretrained.name)
        tuned = TrainedModel(
            pretrained.path,
            classifier.config,
            {**untrained, **best},
            pretrained.tokenizer,
            replace(metadata, heads={task.name: head}),
        )
        save_model(tuned, folder / MODEL_FOLDER, result.trial.name)
    write_result(result, workdir)


def _head_metadata(
    config: FinetuneConfig, task: FinetuneTask, result: TrialResult, checkpoint: str
) -> HeadMetadata:
    command = finetuning_command(config, task, result.trial, checkpoint)
    return HeadMetadata(
        classes=task.classes or (),
        score_scale=task.score_scale,
        texts=1 if task.train[0].sentence2 is None else 2,
        length=config.length,
        trial={
            **asdict(result.trial),
            **evaluation_to_json(result.best),
            **({} if command is None else {"command": command}),
        },
    )


def _announcement(
    data: EncodedTask, schedule: Schedule, groups: Sequence[Group], pretrained: TrainedModel
) -> str:
    """A summary of the work ahead."""
    sizes = ", ".join(str(len(group.trials)) for group in groups)
    text = (
        f"{data.task.name}: {len(data.train):,} examples of up to {data.train.longest} tokens, "
        f"{schedule.epochs} epochs of {schedule.steps_per_epoch:,} steps; trials at once: {sizes}"
    )
    length = pretrained.metadata.length
    if length is not None and data.train.longest > length:
        text += f"; the model was not pre-trained on positions beyond {length}"
    return text


def _parts(params: ParamArrays, *names: str) -> ParamArrays:
    """The arrays of some parts of the model."""
    return {path: array for path, array in params.items() if path[0] in names}


def finetuning_command(
    config: FinetuneConfig, task: FinetuneTask, trial: Trial, checkpoint: str
) -> str | None:
    """The shortest `tupe finetune` command that repeats a trial, for the model card.

    None if the task was not opened by a command.
    """
    if not task.arguments:
        return None
    return shlex.join(
        [
            *("tupe", "finetune", f"--checkpoint={checkpoint}", *task.arguments),
            *(f"--learning_rates={trial.learning_rate}", f"--seeds={trial.seed}"),
            *nearest_config(_settings(asdict(config)), _shipped()),
        ]
    )


@functools.cache
def _shipped() -> dict[str, dict[str, Any]]:
    return {spec: _settings(load_config(spec).to_dict()) for spec in SHIPPED_CONFIGS}


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flattened(values) if name not in WITHOUT_EFFECT}

"""Fine-tuning on one task: the trials that are not finished yet, group by group.

A work directory holds the trials of a task (`trial.py` says what a finished one is) and

    config.json      what it was begun with; other settings are refused
    unfinished/      a folder for each group under way: its trials and checkpoints
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import jax
from flax import nnx

from tupe_jax.config.schema import ModelConfig
from tupe_jax.data.labelled.example import Example
from tupe_jax.distributed.process_group import say
from tupe_jax.finetune.classifier import TRAINED_PARTS, Classifier
from tupe_jax.finetune.command import CHANGE_NOTHING, finetuning_command
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.finetune.data import Rows, TrainBatches, bucket_lengths, encode_rows
from tupe_jax.finetune.groups import Group, plan_groups
from tupe_jax.finetune.memory import trials_per_device
from tupe_jax.finetune.predictions import write_predictions
from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.finetune.train_loop import EncodedTask, Outcome, Schedule, train_group
from tupe_jax.finetune.trial import (
    PREDICTIONS_FOLDER,
    Trial,
    TrialResult,
    evaluation_to_json,
    read_result,
    write_result,
)
from tupe_jax.finetune.vmapped import Programs, make_programs, mesh_for, unit_optimizer
from tupe_jax.inference.loading import MODEL_FOLDER, Pretrained
from tupe_jax.inference.model_card import save_model
from tupe_jax.interop.model_folder import HeadFacts
from tupe_jax.model import params as flat
from tupe_jax.model.attention_backend import attention_choice
from tupe_jax.model.positions import encodings
from tupe_jax.run.preemption import Stop
from tupe_jax.run.resume_checks import check_begun_with
from tupe_jax.utils.errors import UserError

FREE = (
    *(f"finetune.{name}" for name in CHANGE_NOTHING),
    "model.layer_loop",
    "model.remat",
)
"""What may differ when a work directory is gone on with."""


def finetune(
    config: FinetuneConfig,
    pretrained: Pretrained,
    task: FinetuneTask,
    trials: Sequence[Trial],
    workdir: Path,
    stop: Stop,
) -> list[TrialResult] | None:
    """Train what is not finished of the trials of one task; None: stopped on request, saved."""
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
    # Not before: settings that were refused bind nobody.
    workdir.mkdir(parents=True, exist_ok=True)
    check_begun_with(workdir, begun_with, FREE)
    devices = jax.local_devices()

    @functools.cache  # groups of one size share their compiled programs
    def programs_for(count: int) -> Programs:
        return make_programs(classifier, optimizer, mesh_for(count, devices))

    def compile_one() -> jax.stages.Compiled:
        """The step of a single trial, with the longest rows."""
        programs = programs_for(1)
        choices = programs.choices(trials[:1])
        batch = TrainBatches(data.train, [0], config.batch_size, data.buckets[-1:])(0)
        state = programs.abstract_state(choices, weights)
        return programs.train.lower(state, choices, batch).compile()

    at_once = config.at_once or len(devices) * trials_per_device(devices[0], compile_one)

    # ------------------------------------------------------------------ train
    groups = plan_groups(workdir, trials, at_once, len(devices))
    if groups:
        say(_announcement(data, schedule, groups, pretrained))
        say(str(attention_choice(model, devices[0].platform, data.buckets[-1])))
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
    config: FinetuneConfig, model: ModelConfig, pretrained: Pretrained, task: FinetuneTask
) -> EncodedTask:
    limits = [encoding.longest for encoding in encodings(model).values() if encoding.longest]
    if config.length > min(limits, default=config.length):
        raise UserError(
            f"rows of finetune.length={config.length} tokens are more than the model's "
            f"position.max_length={min(limits)}; set the config's length to {min(limits)}"
        )

    def rows(examples: Sequence[Example]) -> Rows:
        return encode_rows(examples, pretrained.vocabulary, config.length, task.score_scale)

    train = rows(task.train)
    dev = {split: rows(examples) for split, examples in task.dev.items()}
    test = {split: rows(examples) for split, examples in task.test.items()}
    longest = max(split.longest for split in (train, *dev.values(), *test.values()))
    return EncodedTask(task, train, dev, test, bucket_lengths(model, config.length, longest))


def _finish(
    config: FinetuneConfig,
    classifier: Classifier,
    pretrained: Pretrained,
    task: FinetuneTask,
    outcome: Outcome,
    number: int,
    workdir: Path,
) -> None:
    """Write the folder of one trial of a group, its result last."""
    result = outcome.results[number]
    folder = workdir / result.trial.name
    for split, predictions_TxN in outcome.predictions.items():
        write_predictions(folder / PREDICTIONS_FOLDER, task, split, predictions_TxN[number])
    if config.keep_weights and not (folder / MODEL_FOLDER).exists():
        before = (
            flat.arrays_of(classifier.create(result.trial.seed))
            if config.from_scratch
            else pretrained.params
        )
        untrained = {path: a for path, a in before.items() if path[0] not in TRAINED_PARTS}
        best = {
            tuple(map(str, path)): param[...][number]
            for path, param in nnx.to_flat_state(outcome.best_params)
        }
        tuned = replace(
            pretrained,
            config=classifier.config,
            classification_heads={classifier.head: classifier.num_outputs},
            params={**untrained, **best},
            heads={task.name: _facts(config, task, result, pretrained.name)},
        )
        if config.from_scratch:
            tuned = replace(tuned, step=None, length=None, run={}, origin="")
        save_model(tuned, folder / MODEL_FOLDER, result.trial.name)
    write_result(result, workdir)


def _facts(
    config: FinetuneConfig, task: FinetuneTask, result: TrialResult, checkpoint: str
) -> HeadFacts:
    command = finetuning_command(config, task, result.trial, checkpoint)
    return HeadFacts(
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
    data: EncodedTask, schedule: Schedule, groups: Sequence[Group], pretrained: Pretrained
) -> str:
    """What is going to happen."""
    sizes = ", ".join(str(len(group.trials)) for group in groups)
    text = (
        f"{data.task.name}: {len(data.train):,} rows of up to {data.train.longest} tokens, "
        f"{schedule.epochs} epochs of {schedule.steps_per_epoch:,} steps; trials at once: {sizes}"
    )
    if pretrained.length is not None and data.train.longest > pretrained.length:
        text += f"; places beyond {pretrained.length} are new to the model"
    return text


def _parts(arrays: Mapping[flat.Path, flat.Array], *names: str) -> dict[flat.Path, flat.Array]:
    """The arrays of some parts of the model."""
    return {path: array for path, array in arrays.items() if path[0] in names}

"""The command that repeats one trial, for the model card."""

import functools
import shlex
from dataclasses import asdict
from typing import Any

from tupe_jax.config.loading import load_config, nearest_config
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.finetune.trial import Trial
from tupe_jax.run.resume_checks import flattened

FORMS = ("finetune", "finetune:quick")

CHANGE_NOTHING = (
    "at_once",
    "keep_weights",
    "optimizer.peak_learning_rate",  # each trial has its own
    "save_seconds",
)
"""Settings that a trial's numbers do not depend on."""


def finetuning_command(
    config: FinetuneConfig, task: FinetuneTask, trial: Trial, checkpoint: str
) -> str | None:
    """The `tupe finetune` with the fewest settings; None if the task is not one of a command's."""
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
    return {spec: _settings(load_config(spec).to_dict()) for spec in FORMS}


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flattened(values) if name not in CHANGE_NOTHING}

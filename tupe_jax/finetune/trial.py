"""A trial is one fine-tuning: a learning rate and a seed. What came of it, as data and as JSON.

A work directory holds the trials of one task. A finished one is a folder `<trial.name>` with

    result.json      a `TrialResult`, written last
    model/           the weights of the best evaluation: a model folder with its vocabulary
    predictions/     what those weights say about the splits, in GLUE's format

so that work directories of several machines are joined by copying their folders together.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file

RESULT_FILE = "result.json"
PREDICTIONS_FOLDER = "predictions"

Scores = Mapping[str, Mapping[str, float]]
"""By split and metric: {"dev": {"accuracy": 0.9}}."""


@dataclass(frozen=True)
class Trial:
    """All that tells one fine-tuning of a task from another.

    The seed decides on the head's first weights, the order of the rows, and dropout.
    """

    learning_rate: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < 1:
            raise UserError(f"learning rate {self.learning_rate} must be between 0 and 1")
        if not 0 <= self.seed < 2**32:
            raise UserError(f"seed {self.seed} must be between 0 and {2**32 - 1}")

    @property
    def name(self) -> str:
        return f"lr{self.learning_rate}-seed{self.seed}"


@dataclass(frozen=True)
class Evaluation:
    """The scores after `step` batches, and the mean training loss since the evaluation before."""

    step: int
    epoch: float
    scores: Scores
    train_loss: float


@dataclass(frozen=True)
class TrialResult:
    """All evaluations of a trial; `best` is the first of those with the highest chosen score."""

    trial: Trial
    evaluations: tuple[Evaluation, ...]
    best: Evaluation

    @property
    def last(self) -> Evaluation:
        return self.evaluations[-1]


def trials_of(learning_rates: Sequence[float], seeds: Sequence[int]) -> list[Trial]:
    """Every learning rate with every seed."""
    for name, values in (("learning rate", learning_rates), ("seed", seeds)):
        if len(set(values)) < len(values):
            raise UserError(f"a {name} is given twice in {', '.join(map(str, values))}")
    return [Trial(rate, seed) for rate in learning_rates for seed in seeds]


def write_result(result: TrialResult, workdir: Path) -> None:
    """Finish the trial's folder in a work directory."""
    file = workdir / result.trial.name / RESULT_FILE
    with atomic_file(file) as unfinished:
        unfinished.write_text(json.dumps(to_json(result), indent=2) + "\n", encoding="utf-8")


def read_result(trial: Trial, workdir: Path) -> TrialResult | None:
    """What came of a trial; None if it is not finished."""
    file = workdir / trial.name / RESULT_FILE
    if not file.exists():
        return None
    try:
        result = from_json(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged ({error}); remove its folder to repeat it") from error
    if result.trial != trial:
        raise UserError(f"{file} is of {result.trial.name}; it was moved: put it back")
    return result


def to_json(result: TrialResult) -> dict[str, Any]:
    return {
        "trial": asdict(result.trial),
        "best": evaluation_to_json(result.best),
        "last": evaluation_to_json(result.last),
        "evaluations": [evaluation_to_json(evaluation) for evaluation in result.evaluations],
    }


def from_json(values: Mapping[str, Any]) -> TrialResult:
    return TrialResult(
        trial=Trial(**values["trial"]),
        evaluations=tuple(evaluation_from_json(line) for line in values["evaluations"]),
        best=evaluation_from_json(values["best"]),
    )


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "step": evaluation.step,
        "epoch": evaluation.epoch,
        "train_loss": _number_or_null(evaluation.train_loss),
        "scores": {
            split: {metric: _number_or_null(value) for metric, value in of_split.items()}
            for split, of_split in evaluation.scores.items()
        },
    }


def evaluation_from_json(values: Mapping[str, Any]) -> Evaluation:
    return Evaluation(
        step=values["step"],
        epoch=values["epoch"],
        train_loss=_number_or_nan(values["train_loss"]),
        scores={
            split: {metric: _number_or_nan(value) for metric, value in of_split.items()}
            for split, of_split in values["scores"].items()
        },
    )


def _number_or_null(value: float) -> float | None:
    """JSON has no NaN, which is what a correlation with constant predictions is."""
    return value if math.isfinite(value) else None


def _number_or_nan(value: float | None) -> float:
    return math.nan if value is None else value

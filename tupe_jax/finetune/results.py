"""A trial is one fine-tuning run: a learning rate and a seed. Its results, and their files.

A work directory holds the trials of one task. A finished one is a folder `<trial.name>` with

    result.json      a `TrialResult`, written last
    model/           the weights of the best evaluation: a model folder with its tokenizer
    predictions/     the predictions of those weights, one file for each split

Work directories of several machines are merged by copying their folders into one. The folder
`predictions/test` of all tasks, zipped, is a submission to GLUE's server (with AX.tsv, which is not
one of the nine tasks); `predictions/dev` has the same format.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path

RESULT_FILE = "result.json"
PREDICTIONS_FOLDER = "predictions"

Scores = Mapping[str, Mapping[str, float]]
"""By split and metric: {"dev": {"accuracy": 0.9}}."""


@dataclass(frozen=True)
class Trial:
    """Identifies a fine-tuning run of a task.

    The seed determines the initial weights of the head, the order of the examples, and dropout.
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
    """The scores after `step` batches, and the mean training loss since the last evaluation."""

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
            raise UserError(f"duplicate {name} in {', '.join(map(str, values))}")
    return [Trial(rate, seed) for rate in learning_rates for seed in seeds]


def write_result(result: TrialResult, workdir: Path) -> None:
    """Write the result of a trial, which marks its folder as finished."""
    file = workdir / result.trial.name / RESULT_FILE
    with atomic_file(file) as unfinished:
        unfinished.write_text(json.dumps(to_json(result), indent=2) + "\n", encoding="utf-8")


def read_result(trial: Trial, workdir: Path) -> TrialResult | None:
    """The result of a trial; None if it is not finished."""
    file = workdir / trial.name / RESULT_FILE
    if not file.exists():
        return None
    try:
        result = from_json(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} is damaged ({error}); remove its folder to train the trial again"
        ) from error
    if result.trial != trial:
        raise UserError(f"{file} belongs to {result.trial.name}; move it back")
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
    """JSON has no NaN, the value of a correlation with constant predictions."""
    return value if math.isfinite(value) else None


def _number_or_nan(value: float | None) -> float:
    return math.nan if value is None else value


GLUE_FILES: Mapping[str, tuple[str, ...]] = {
    "cola": ("CoLA.tsv",),
    "sst2": ("SST-2.tsv",),
    "mrpc": ("MRPC.tsv",),
    "stsb": ("STS-B.tsv",),
    "qqp": ("QQP.tsv",),
    "mnli": ("MNLI-m.tsv", "MNLI-mm.tsv"),
    "qnli": ("QNLI.tsv",),
    "rte": ("RTE.tsv",),
    "wnli": ("WNLI.tsv",),
}
"""The file names that the server expects; MNLI has one per split, matched first."""
OTHER_FILE = "predictions.tsv"
STSB_LIMITS = (0.0, 5.0)


def write_predictions(
    folder: Path, task: FinetuneTask, split: str, predictions: NDArray[Any]
) -> Path:
    """Write predictions of a dev or test split: class numbers, or scores / `score_scale`.

    The format is that of GLUE's server: `index<TAB>prediction`.
    """
    path = folder / predictions_file(task, split)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{index}\t{text}" for index, text in enumerate(_as_texts(task, predictions))]
    with atomic_file(path) as unfinished:
        unfinished.write_text("\n".join(["index\tprediction", *lines, ""]), encoding="utf-8")
    return path


def predictions_file(task: FinetuneTask, split: str) -> Path:
    """The path of the predictions of a split, such as `test/MNLI-mm.tsv`."""
    kind = split.partition("_")[0]
    if task.name not in GLUE_FILES:
        return Path(kind) / OTHER_FILE
    return Path(kind) / GLUE_FILES[task.name][1 if split.endswith("_mismatched") else 0]


def _as_texts(task: FinetuneTask, predictions: NDArray[Any]) -> list[str]:
    if task.classes is not None:
        return [task.classes[number] for number in predictions]
    scores = predictions.astype(np.float64) * task.score_scale
    if task.name == "stsb":
        scores = np.clip(scores, *STSB_LIMITS)
    return [f"{score:.3f}" for score in scores]

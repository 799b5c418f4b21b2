"""Predictions as GLUE's server takes them: `index<TAB>prediction`, one file per split.

`test/` of all tasks, zipped, is a submission (with AX.tsv, which is not one of the nine tasks);
`dev/` has the same form, for looking at mistakes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.utils.files import atomic_file

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
"""The names that the server expects; MNLI has one for each of its splits, matched first."""
OTHER_FILE = "predictions.tsv"
STSB_LIMITS = (0.0, 5.0)


def write_predictions(
    folder: Path, task: FinetuneTask, split: str, predictions: NDArray[Any]
) -> Path:
    """Write what a model says of a dev or test split: class numbers, or scores / `score_scale`."""
    path = folder / predictions_file(task, split)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{index}\t{text}" for index, text in enumerate(_as_texts(task, predictions))]
    with atomic_file(path) as unfinished:
        unfinished.write_text("\n".join(["index\tprediction", *lines, ""]), encoding="utf-8")
    return path


def predictions_file(task: FinetuneTask, split: str) -> Path:
    """Where the predictions of a split are, such as `test/MNLI-mm.tsv`."""
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

"""Predictions of trials for a split, and their scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tupe_jax.finetune.data import EncodedSplit, Indices, evaluation_batches
from tupe_jax.finetune.metrics import METRICS
from tupe_jax.finetune.results import Scores
from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.finetune.vmapped import Programs
from tupe_jax.run.preemption import Stop
from tupe_jax.training.train_state import Params

Predictions = NDArray[Any]
"""[T, N]: class numbers, or scores divided by the task's scale."""


def predict(
    programs: Programs,
    params: Params,
    task: FinetuneTask,
    splits: Mapping[str, EncodedSplit],
    batch_size: int,
    buckets: Sequence[int],
    stop: Stop,
) -> dict[str, Predictions] | None:
    """The predictions for every split; None: a stop was requested."""
    predictions = {}
    for split, rows in splits.items():
        outputs: list[jax.Array] = []
        indices: list[Indices] = []
        for indices_B, tokens_BxS in evaluation_batches(rows, batch_size, buckets):
            if stop.requested:
                return None
            outputs.append(programs.outputs_TxBxC(params, tokens_BxS))
            indices.append(indices_B)
        by_length_TxMxC = np.concatenate(jax.device_get(outputs), axis=1)
        outputs_TxNxC = np.empty_like(by_length_TxMxC[:, : len(rows)])
        outputs_TxNxC[:, np.concatenate(indices)] = by_length_TxMxC
        predictions[split] = (
            outputs_TxNxC[..., 0] if task.is_regression else outputs_TxNxC.argmax(-1)
        )
    return predictions


def scores_of_trials(
    task: FinetuneTask, splits: Mapping[str, EncodedSplit], predictions: Mapping[str, Predictions]
) -> list[Scores]:
    """All metrics of the task on every split, for each trial."""
    count = len(next(iter(predictions.values())))
    return [
        {
            split: {
                metric: METRICS[metric](predictions[split][trial], rows.labels_N)
                for metric in task.metrics
            }
            for split, rows in splits.items()
        }
        for trial in range(count)
    ]

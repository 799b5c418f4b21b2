"""Aggregation of the protocol: the median over seeds of each learning rate, then the best rate.

An undefined correlation, which constant predictions have, counts as 0.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tupe_jax.finetune.results import Evaluation, TrialResult

Moment = Callable[[TrialResult], Evaluation]
"""Selects an evaluation of a trial: its best or its last."""


@dataclass(frozen=True)
class RateScore:
    """The scores of all seeds with one learning rate on one split."""

    learning_rate: float
    by_seed: Mapping[int, float]

    @cached_property
    def median(self) -> float:
        return statistics.median(self.by_seed.values())

    @property
    def lowest(self) -> float:
        return min(self.by_seed.values())

    @property
    def highest(self) -> float:
        return max(self.by_seed.values())


@dataclass(frozen=True)
class TaskSummary:
    """The scores of all trials of a task; `splits` is empty while no trial is finished."""

    metric: str
    splits: Mapping[str, Sequence[RateScore]]
    """For each split, the scores of every learning rate with a finished trial."""
    finished: int
    planned: int

    @property
    def best_rate(self) -> float | None:
        """The learning rate with the highest median on the first split."""
        if not self.splits:
            return None
        first = next(iter(self.splits.values()))
        return max(first, key=lambda score: score.median).learning_rate

    def reported(self, split: str) -> RateScore | None:
        """The scores of the best learning rate on a split."""
        scores = self.splits.get(split, ())
        return next((score for score in scores if score.learning_rate == self.best_rate), None)


def summarize_task(
    results: Sequence[TrialResult], metric: str, moment: Moment, planned: int
) -> TaskSummary:
    splits = moment(results[0]).scores if results else ()
    return TaskSummary(
        metric=metric,
        splits={split: rate_scores(results, split, metric, moment) for split in splits},
        finished=len(results),
        planned=planned,
    )


def rate_scores(
    results: Iterable[TrialResult], split: str, metric: str, moment: Moment
) -> list[RateScore]:
    """The scores of each learning rate, in ascending order."""
    by_rate: dict[float, dict[int, float]] = {}
    for result in results:
        score = moment(result).scores[split][metric]
        seeds = by_rate.setdefault(result.trial.learning_rate, {})
        seeds[result.trial.seed] = 0.0 if math.isnan(score) else score
    return [RateScore(rate, by_rate[rate]) for rate in sorted(by_rate)]

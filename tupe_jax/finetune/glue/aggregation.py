"""The arithmetic of the protocol: per learning rate the median over seeds, then the best rate's.

A correlation that has no value, because a model says the same of everything, counts as 0.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tupe_jax.finetune.results import Evaluation, TrialResult

Moment = Callable[[TrialResult], Evaluation]
"""Which evaluation of a trial is meant: its best or its last."""


@dataclass(frozen=True)
class RateScore:
    """What the seeds of one learning rate reached on one split."""

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
    """A task's place in the table; `splits` is empty while no trial is finished."""

    metric: str
    splits: Mapping[str, Sequence[RateScore]]
    """By split, every learning rate that has a finished trial."""
    finished: int
    planned: int

    @property
    def best_rate(self) -> float | None:
        """The learning rate whose median is highest on the first split."""
        if not self.splits:
            return None
        first = next(iter(self.splits.values()))
        return max(first, key=lambda score: score.median).learning_rate

    def reported(self, split: str) -> RateScore | None:
        """What the best learning rate reaches on a split."""
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
    """The scores of each learning rate, in the order of the rates."""
    by_rate: dict[float, dict[int, float]] = {}
    for result in results:
        score = moment(result).scores[split][metric]
        seeds = by_rate.setdefault(result.trial.learning_rate, {})
        seeds[result.trial.seed] = 0.0 if math.isnan(score) else score
    return [RateScore(rate, by_rate[rate]) for rate in sorted(by_rate)]

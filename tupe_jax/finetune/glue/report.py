"""What the protocol found out about a model, as rows like the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tupe_jax.finetune.glue.aggregation import Moment, RateScore, TaskScore, task_score
from tupe_jax.finetune.glue.paper_results import COLA, PAPER_COLUMNS, PAPER_ROWS, Column
from tupe_jax.finetune.tasks import metrics_of
from tupe_jax.finetune.trial import TrialResult

AVERAGES: Mapping[str, Sequence[Column]] = {
    "Avg": PAPER_COLUMNS,
    "Avg without CoLA": [column for column in PAPER_COLUMNS if column != COLA],
}


@dataclass(frozen=True)
class Average:
    """A mean over those of some columns that are there."""

    value: float
    over: int
    of: int


@dataclass(frozen=True)
class Row:
    """A line of the table: percent, for the columns that have a number."""

    model: str
    steps: str
    numbers: Mapping[Column, float]

    def average(self, title: str) -> Average | None:
        columns = AVERAGES[title]
        there = [self.numbers[column] for column in columns if column in self.numbers]
        return Average(sum(there) / len(there), len(there), len(columns)) if there else None


_IN_PAPER = {column.task for column in PAPER_COLUMNS}
PUBLISHED_ROWS = [Row(row.model, row.steps, row.by_column) for row in PAPER_ROWS]


@dataclass(frozen=True)
class Report:
    """The protocol applied to the best evaluation of each trial, and to the last, by task."""

    model: str
    steps: str
    best: Mapping[str, TaskScore]
    last: Mapping[str, TaskScore]

    @property
    def paper_columns(self) -> tuple[Column, ...]:
        """All of the paper's, if any of its tasks is to be there."""
        return PAPER_COLUMNS if _IN_PAPER & self.best.keys() else ()

    @property
    def other_columns(self) -> tuple[Column, ...]:
        return tuple(Column(task, task) for task in self.best if task not in _IN_PAPER)

    @property
    def unfinished(self) -> list[str]:
        """Tasks with trials still to come."""
        return [task for task, score in self.best.items() if score.finished < score.planned]

    def reported(self, column: Column) -> RateScore | None:
        return _reported(self.best, column)

    @property
    def best_row(self) -> Row:
        return self._row(self.model, self.best)

    @property
    def last_row(self) -> Row:
        return self._row(f"{self.model}, last evaluation", self.last)

    def _row(self, model: str, scores: Mapping[str, TaskScore]) -> Row:
        columns = (*self.paper_columns, *self.other_columns)
        reported = {column: _reported(scores, column) for column in columns}
        numbers = {column: 100 * score.median for column, score in reported.items() if score}
        return Row(model, self.steps, numbers)


def make_report(
    model: str, step: int | None, results: Mapping[str, Sequence[TrialResult]], planned: int
) -> Report:
    """`planned` is how many trials each task should have."""

    def scores(moment: Moment) -> dict[str, TaskScore]:
        return {
            task: task_score(of_task, metrics_of(task)[0], moment, planned)
            for task, of_task in results.items()
        }

    steps = "" if step is None else str(step)
    return Report(model, steps, best=scores(lambda r: r.best), last=scores(lambda r: r.last))


def _reported(scores: Mapping[str, TaskScore], column: Column) -> RateScore | None:
    return scores[column.task].reported(column.split) if column.task in scores else None

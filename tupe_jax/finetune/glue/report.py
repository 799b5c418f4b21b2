"""The results of the GLUE protocol in the paper's layout: Markdown, CSV and JSON."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tupe_jax.finetune.glue.aggregation import Moment, RateScore, TaskSummary, summarize_task
from tupe_jax.finetune.glue.paper_results import COLA, PAPER_COLUMNS, PAPER_ROWS, GlueColumn
from tupe_jax.finetune.results import TrialResult
from tupe_jax.finetune.tasks import metrics_of
from tupe_jax.utils.text import markdown_table

AVERAGES: Mapping[str, Sequence[GlueColumn]] = {
    "Avg": PAPER_COLUMNS,
    "Avg without CoLA": [column for column in PAPER_COLUMNS if column != COLA],
}


@dataclass(frozen=True)
class Average:
    """A mean over the columns that have a number."""

    value: float
    over: int
    of: int


@dataclass(frozen=True)
class GlueRow:
    """A row of the table: percentages of the columns that have a number."""

    model: str
    steps: str
    numbers: Mapping[GlueColumn, float]

    def average(self, title: str) -> Average | None:
        columns = AVERAGES[title]
        there = [self.numbers[column] for column in columns if column in self.numbers]
        return Average(sum(there) / len(there), len(there), len(columns)) if there else None


_IN_PAPER = {column.task for column in PAPER_COLUMNS}
PUBLISHED_ROWS = [GlueRow(row.model, row.steps, row.by_column) for row in PAPER_ROWS]


@dataclass(frozen=True)
class GlueReport:
    """The scores of all tasks, by the best and by the last evaluation of each trial."""

    model: str
    steps: str
    best: Mapping[str, TaskSummary]
    last: Mapping[str, TaskSummary]

    @property
    def paper_columns(self) -> tuple[GlueColumn, ...]:
        """All columns of the paper, if the protocol has any of its tasks."""
        return PAPER_COLUMNS if _IN_PAPER & self.best.keys() else ()

    @property
    def other_columns(self) -> tuple[GlueColumn, ...]:
        return tuple(GlueColumn(task, task) for task in self.best if task not in _IN_PAPER)

    @property
    def unfinished(self) -> list[str]:
        """Tasks with unfinished trials."""
        return [task for task, score in self.best.items() if score.finished < score.planned]

    def reported(self, column: GlueColumn) -> RateScore | None:
        return _reported(self.best, column)

    @property
    def best_row(self) -> GlueRow:
        return self._row(self.model, self.best)

    @property
    def last_row(self) -> GlueRow:
        return self._row(f"{self.model}, last evaluation", self.last)

    def _row(self, model: str, scores: Mapping[str, TaskSummary]) -> GlueRow:
        columns = (*self.paper_columns, *self.other_columns)
        reported = {column: _reported(scores, column) for column in columns}
        numbers = {column: 100 * score.median for column, score in reported.items() if score}
        return GlueRow(model, self.steps, numbers)


def make_report(
    model: str, step: int | None, results: Mapping[str, Sequence[TrialResult]], planned: int
) -> GlueReport:
    """Summarize all results; `planned` is the number of trials of each task."""

    def scores(moment: Moment) -> dict[str, TaskSummary]:
        return {
            task: summarize_task(of_task, metrics_of(task)[0], moment, planned)
            for task, of_task in results.items()
        }

    steps = "" if step is None else str(step)
    return GlueReport(model, steps, best=scores(lambda r: r.best), last=scores(lambda r: r.last))


def _reported(scores: Mapping[str, TaskSummary], column: GlueColumn) -> RateScore | None:
    return scores[column.task].reported(column.split) if column.task in scores else None


NOTHING = "-"
UNFINISHED = "*"


def markdown(report: GlueReport) -> str:
    """The table, followed by notes on how to read it."""
    paper, others = report.paper_columns, report.other_columns
    averages = list(AVERAGES) if paper else []

    def line(
        model: str, steps: str, text: Callable[[GlueColumn], str], average: Callable[[str], str]
    ) -> list[str]:
        cells = [model, steps, *_by_task(paper, text), *map(average, averages)]
        return [*cells, *_by_task(others, text)]

    def numbers(row: GlueRow, unfinished: Sequence[str] = ()) -> list[str]:
        def mark(*columns: GlueColumn) -> str:
            some = any(column in row.numbers and column.task in unfinished for column in columns)
            return UNFINISHED if some else ""

        return line(
            row.model,
            row.steps,
            lambda c: f"{row.numbers[c]:.2f}{mark(c)}" if c in row.numbers else NOTHING,
            lambda title: f"{_average_text(row.average(title))}{mark(*AVERAGES[title])}",
        )

    def of_best_rate(what: str, text: Callable[[RateScore], str]) -> list[str]:
        def cell(column: GlueColumn) -> str:
            score = report.reported(column)
            return NOTHING if score is None else text(score)

        return line(what, "", cell, lambda title: "")

    table = [
        line("model", "steps", _short_title, str),
        *(numbers(row) for row in PUBLISHED_ROWS if paper),
        numbers(report.best_row, report.unfinished),
        of_best_rate("its seeds, lowest to highest", _spread_text),
        of_best_rate("its learning rate", lambda score: f"{score.learning_rate:g}"),
        numbers(report.last_row, report.unfinished),
    ]
    return "\n".join([*markdown_table(table), "", *_notes(report)])


def csv_table(report: GlueReport) -> str:
    """One row per model: the published ones, then this model's best and last evaluations."""
    columns = (*report.paper_columns, *report.other_columns)
    titles = [column.title for column in columns]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", "steps", *titles, *AVERAGES, "numbers in Avg"])
    published = PUBLISHED_ROWS if report.paper_columns else []
    for row in (*published, report.best_row, report.last_row):
        averages = [row.average(title) for title in AVERAGES]
        writer.writerow(
            [
                row.model,
                row.steps,
                *(_two_digits(row.numbers.get(column)) for column in columns),
                *(_two_digits(average.value if average else None) for average in averages),
                averages[0].over if averages[0] else 0,
            ]
        )
    return out.getvalue()


def as_json(report: GlueReport) -> dict[str, Any]:
    """Every score behind the table, as fractions."""
    return {
        "model": report.model,
        "steps": report.steps,
        "best": {task: _task_json(score) for task, score in report.best.items()},
        "last": {task: _task_json(score) for task, score in report.last.items()},
    }


def _task_json(score: TaskSummary) -> dict[str, Any]:
    def rate_json(rate: RateScore) -> dict[str, Any]:
        return {
            "learning_rate": rate.learning_rate,
            "median": rate.median,
            "lowest": rate.lowest,
            "highest": rate.highest,
            "by_seed": {str(seed): value for seed, value in rate.by_seed.items()},
        }

    return {
        "metric": score.metric,
        "trials_finished": score.finished,
        "trials_planned": score.planned,
        "reported_learning_rate": score.best_rate,
        "splits": {
            split: [rate_json(rate) for rate in rates] for split, rates in score.splits.items()
        },
    }


def _by_task(columns: Sequence[GlueColumn], text: Callable[[GlueColumn], str]) -> list[str]:
    """One cell for each task; MNLI's two numbers share a cell."""
    cells: dict[str, list[str]] = {}
    for column in columns:
        cells.setdefault(column.task, []).append(text(column))
    return [NOTHING if set(of) == {NOTHING} else "/".join(of) for of in cells.values()]


def _short_title(column: GlueColumn) -> str:
    return "mm" if column.title == "MNLI-mm" else column.title


def _spread_text(score: RateScore) -> str:
    return f"{100 * score.lowest:.2f} to {100 * score.highest:.2f}"


def _average_text(average: Average | None) -> str:
    if average is None:
        return NOTHING
    share = "" if average.over == average.of else f" ({average.over} of {average.of})"
    return f"{average.value:.2f}{share}"


def _two_digits(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _notes(report: GlueReport) -> list[str]:
    notes = [
        "Percent on dev: accuracy, for CoLA Matthews correlation, for STS Pearson correlation. "
        "Each number is the median over seeds of the best evaluations, for the learning rate with "
        "the highest median. An average over fewer columns shows their number."
    ]
    if report.unfinished:
        left = [
            f"{task} {score.planned - score.finished} of {score.planned}"
            for task, score in report.best.items()
            if task in report.unfinished
        ]
        notes.append(f"{UNFINISHED} Unfinished trials: {', '.join(left)}.")
    return notes

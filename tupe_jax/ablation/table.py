"""The table of a study: Markdown with a line for each variant, CSV with one for each run."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tupe_jax.ablation.convergence import SpeedUp, first_crossing
from tupe_jax.ablation.results import RunRecord, StudyResults
from tupe_jax.ablation.work_plan import best_rate

NOTHING, UNFINISHED, NO_GOAL = "-", "*", "no goal"
PERCENTAGES = {"accuracy", "f1"}
"""Of other metrics (Matthews' correlation, Pearson's) a hundredth is no percent."""

Value = Callable[[RunRecord], float | None]


def _of_mean_matrix(measure: str) -> Value:
    return lambda record: record.measures.get(measure)


def _mean_of_heads(measure: str) -> Value:
    return lambda record: record.of_heads.get(measure)


SHOWN_MEASURES: dict[str, Value] = {
    "locality": _of_mean_matrix("locality"),
    "symmetry": _of_mean_matrix("symmetry"),
    # A head to the left and one to the right are lost in a mean matrix.
    "mirror symmetry of heads": _mean_of_heads("mirror_symmetry"),
}
"""As the second paper takes its two, and one that sees the sides."""


@dataclass(frozen=True)
class RunColumn:
    """A number of every run, and how it is written."""

    title: str
    value: Value
    digits: int
    scale: float = 1.0


def columns_of(collected: StudyResults) -> list[RunColumn]:
    """What the study measures."""
    config = collected.config
    columns = [RunColumn("validation loss, nats", lambda r: r.final_loss, 3)]
    columns += [_score_column(task, collected) for task in config.downstream.tasks]
    columns += [RunColumn(name, value, 3) for name, value in SHOWN_MEASURES.items()]
    if config.measure.minimal_pairs:
        columns.append(RunColumn("minimal pairs, %", _all_pairs, 1, 100))
    probes = dict.fromkeys(name for record in _runs(collected) for name in record.probes)
    return columns + [_probe_column(name) for name in probes]


def _score_column(task: str, collected: StudyResults) -> RunColumn:
    metrics = {record.scores[task].metric for record in _runs(collected) if task in record.scores}
    unit = "%" if metrics <= PERCENTAGES else f"100 x {metrics.pop()}"
    return RunColumn(
        f"{task}, {unit}", lambda r: r.scores[task].best if task in r.scores else None, 1, 100
    )


def _probe_column(name: str) -> RunColumn:
    return RunColumn(
        f"{name}, points", lambda r: r.probes[name].delta if name in r.probes else None, 1, 100
    )


def _all_pairs(record: RunRecord) -> float | None:
    return record.pairs["all"].accuracy if "all" in record.pairs else None


def markdown(collected: StudyResults) -> str:
    """The table, and below it what one must know to read it."""
    columns = columns_of(collected)
    steps = collected.to_first
    header = ["variant", "parameters", "learning rate", "seeds", *(c.title for c in columns)]
    header += [f"steps to {collected.first}'s final loss"] if steps else []
    lines = [_line(header), "|---|" + "---:|" * (len(header) - 1)]
    for variant in collected.config.variants:
        records = list(collected.runs[variant.name].values())
        planned = len(collected.config.seeds)
        mark = UNFINISHED if len(records) < planned else ""
        lines.append(
            _line(
                [
                    variant.name,
                    f"{records[0].parameters:,}" if records else NOTHING,
                    f"{records[0].learning_rate:g}" if records else NOTHING,
                    f"{len(records)}{mark}",
                    *(_cell(column, records) for column in columns),
                    *([_steps(steps.get(variant.name))] if steps else []),
                ]
            )
        )
    return "\n".join([*lines, "", *_notes(collected, steps)])


def _steps(result: SpeedUp | None) -> str:
    """Geometric mean over seeds and its interval."""
    if result is None:
        return NOTHING
    if not result.has_goal:
        return NO_GOAL
    if len(result.reached) < len(result.steps):
        some = f"by {len(result.reached)} of {len(result.steps)} seeds"
        return f"reached {some}" if result.reached else "never reached"
    interval = result.steps_interval
    shown = "" if interval is None else f" ({interval[0]:,.0f} to {interval[1]:,.0f})"
    most = "at most " if result.is_bound else ""
    return f"{most}{statistics.geometric_mean(result.reached):,.0f}{shown}"


def _cell(column: RunColumn, records: Sequence[RunRecord]) -> str:
    """Mean and standard deviation over seeds; of how many, if not all have the number."""
    found = [column.value(record) for record in records]
    values = [column.scale * value for value in found if value is not None]
    if not values:
        return NOTHING
    mean = f"{statistics.fmean(values):.{column.digits}f}"
    of = f" ({len(values)} of {len(records)} seeds)" if len(values) < len(records) else ""
    if len(values) == 1 or math.inf in values:  # a run that diverged
        return mean + of
    return f"{mean} ± {statistics.stdev(values):.{column.digits}f}{of}"


def _notes(collected: StudyResults, steps: Mapping[str, SpeedUp]) -> Iterator[str]:
    config = collected.config
    train, data = config.pretrain.train, config.pretrain.data
    yield (
        f"{train.steps:,} steps of {train.batch_size} rows of {data.length} tokens of "
        f"{data.task}. Mean ± standard deviation over seeds. Attention by position: "
        f"n = {config.measure.length}, {config.measure.words} repeated words; locality and "
        "symmetry are those of the mean matrix over layers and heads, mirror symmetry is the mean "
        "of every head's own."
    )
    if steps:
        yield (
            f"Steps to the mean final validation loss of {collected.first}: the geometric "
            "mean over seeds and its interval of 95 %, where there is one. A slower variant ends "
            "above that loss: reached by some seeds means not told apart (or that the others "
            "diverged), never reached that no number can be given."
        )
        if not all(result.has_goal for result in steps.values()):
            yield f"{NO_GOAL.capitalize()}: a seed of {collected.first} diverged."
    if config.downstream.tasks:
        yield (
            "Tasks: the best evaluation on dev, of the learning rate whose median over seeds of "
            "fine-tuning is best."
        )
    if config.measure.probe_task:
        yield (
            "Shuffle and Random: the accuracy of models fine-tuned on "
            f"{config.measure.probe_task}, on pairs of {config.measure.probe_source}, after the "
            "order of words was changed, less that before. In Shuffle-SR another answer is "
            "right after the change; in the others the same."
        )
    if any(collected.tuning.values()):
        yield ""
        yield from _tuning_table(collected)
    if collected.missing:
        yield ""
        yield f"\\{UNFINISHED} Runs still to come: {len(collected.missing)}."


def _tuning_table(collected: StudyResults) -> Iterator[str]:
    """What every learning rate reached, so that a reader sees whether the grid was wide enough."""
    config = collected.config
    rates = sorted(config.learning_rates)
    yield f"Learning rates, by the validation loss of seed {config.seeds[0]}:"
    yield ""
    yield _line(["variant", *(f"{rate:g}" for rate in rates)])
    yield "|---|" + "---:|" * len(rates)
    at_the_edge = []
    for name, records in collected.tuning.items():
        losses = {rate: record.final_loss for rate, record in records.items()}
        chosen = best_rate(losses) if len(losses) == len(rates) else None
        if chosen is not None and math.isinf(losses[chosen]):
            chosen = None  # all diverged
        cells = (f"{losses[rate]:.3f}" if rate in losses else NOTHING for rate in rates)
        marked = (
            f"**{cell}**" if rate == chosen else cell
            for rate, cell in zip(rates, cells, strict=True)
        )
        yield _line([name, *marked])
        if chosen in (rates[0], rates[-1]):
            at_the_edge.append(f"{name} ({chosen:g})")
    if at_the_edge:
        yield ""
        yield f"Best at the edge of what was tried: {', '.join(at_the_edge)}."


def csv_table(collected: StudyResults) -> str:
    """Every number of every finished run."""
    first, to_first = collected.first, collected.to_first
    rows = [
        {**dict(_numbers(record)), **dict(_steps_of(record, first, to_first.get(record.variant)))}
        for record in _runs(collected)
    ]
    titles = dict.fromkeys(title for row in rows for title in row)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(titles), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _numbers(record: RunRecord) -> Iterator[tuple[str, str | float]]:
    yield "variant", record.variant
    yield "seed", record.seed
    yield "learning_rate", record.learning_rate
    yield "parameters", record.parameters
    yield "validation_loss", record.final_loss
    for task, score in record.scores.items():
        yield f"{task}_{score.metric}_best", score.best
        yield f"{task}_{score.metric}_last", score.last
    yield from record.measures.items()
    for name, value in record.of_heads.items():
        yield f"{name}_of_heads", value
    for name, pairs in record.pairs.items():
        yield f"pairs_{name.replace(' ', '_')}", pairs.accuracy
    for name, probe in record.probes.items():
        yield f"{name}_accuracy", probe.accuracy
        yield f"{name}_delta", probe.delta
        yield f"{name}_delta_low", probe.low
        yield f"{name}_delta_high", probe.high


def _steps_of(
    record: RunRecord, first: str, to_first: SpeedUp | None
) -> Iterator[tuple[str, str | float]]:
    """Where a run of another variant is at the first one's final loss, if there is one."""
    if to_first is not None and to_first.has_goal and record.curve:
        steps = first_crossing(record.curve, to_first.goal)
        yield f"steps_to_{first}", "never" if steps is None else steps


def _runs(collected: StudyResults) -> Iterator[RunRecord]:
    for records in collected.runs.values():
        yield from records.values()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

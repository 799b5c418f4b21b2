"""The table of a study: Markdown with a line for each variant, CSV with one for each run."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tupe_jax.ablation.collect import Collected
from tupe_jax.ablation.convergence import SpeedUp, speed_up
from tupe_jax.ablation.plan import best_rate
from tupe_jax.ablation.record import Curve, RunRecord

NOTHING, UNFINISHED = "-", "*"
SHOWN_MEASURES = ("locality", "symmetry", "mirror_symmetry")


@dataclass(frozen=True)
class Column:
    """A number of every run, and how it is written."""

    title: str
    value: Callable[[RunRecord], float | None]
    digits: int
    scale: float = 1.0


def columns_of(collected: Collected) -> list[Column]:
    """What the study measures."""
    config = collected.config
    columns = [Column("validation loss, nats", lambda r: r.final_loss, 3)]
    columns += [_score_column(task) for task in config.downstream.tasks]
    columns += [_measure_column(name) for name in SHOWN_MEASURES]
    if config.measure.minimal_pairs:
        columns.append(Column("minimal pairs, %", _all_pairs, 1, 100))
    probes = dict.fromkeys(name for record in _runs(collected) for name in record.probes)
    return columns + [_probe_column(name) for name in probes]


def _score_column(task: str) -> Column:
    return Column(f"{task}, %", lambda r: r.scores[task].best if task in r.scores else None, 1, 100)


def _measure_column(name: str) -> Column:
    return Column(name.replace("_", " "), lambda r: r.measures.get(name), 3)


def _probe_column(name: str) -> Column:
    return Column(
        f"{name}, points", lambda r: r.probes[name].delta if name in r.probes else None, 1, 100
    )


def _all_pairs(record: RunRecord) -> float | None:
    return record.pairs["all"].accuracy if "all" in record.pairs else None


def markdown(collected: Collected) -> str:
    """The table, and below it what one must know to read it."""
    columns = columns_of(collected)
    curves = collected.curves
    first, *others = (variant.name for variant in collected.config.variants)
    steps = {
        name: speed_up(curves[name], curves[first])
        for name in others
        if first in curves and name in curves
    }
    header = ["variant", "parameters", "learning rate", "seeds", *(c.title for c in columns)]
    header += [f"steps to {first}'s final loss"] if steps else []
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
    return "\n".join([*lines, "", *_notes(collected, has_steps=bool(steps))])


def _steps(result: SpeedUp | None) -> str:
    """Geometric mean over seeds and its interval."""
    if result is None:
        return NOTHING
    if len(result.reached) < len(result.steps):
        some = f"by {len(result.reached)} of {len(result.steps)} seeds"
        return f"reached {some}" if result.reached else "never reached"
    interval = result.steps_interval
    shown = "" if interval is None else f" ({interval[0]:,.0f} to {interval[1]:,.0f})"
    most = "at most " if result.is_bound else ""
    return f"{most}{statistics.geometric_mean(result.reached):,.0f}{shown}"


def _cell(column: Column, records: Sequence[RunRecord]) -> str:
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


def _notes(collected: Collected, has_steps: bool) -> Iterator[str]:
    config = collected.config
    train, data = config.pretrain.train, config.pretrain.data
    yield (
        f"{train.steps:,} steps of {train.batch_size} rows of {data.length} tokens of "
        f"{data.task}. Mean ± standard deviation over seeds. Attention by position: "
        f"n = {config.measure.length}, the mean over layers, heads and {config.measure.words} "
        "repeated words."
    )
    if has_steps:
        yield (
            f"Steps to the mean final validation loss of {config.variants[0].name}: the geometric "
            "mean over seeds and its interval of 95 %, where there is one. A slower variant ends "
            "above that loss: reached by some seeds means not told apart, never reached that no "
            "number can be given."
        )
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
        yield f"{UNFINISHED} Runs still to come: {len(collected.missing)}."


def _tuning_table(collected: Collected) -> Iterator[str]:
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


def csv_table(collected: Collected) -> str:
    """Every number of every finished run."""
    first = collected.config.variants[0].name
    others = collected.curves.get(first, [])
    rows = [
        {**dict(_numbers(record)), **_steps_of(record, first, others)}
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
    for name, pairs in record.pairs.items():
        yield f"pairs_{name.replace(' ', '_')}", pairs.accuracy
    for name, probe in record.probes.items():
        yield f"{name}_accuracy", probe.accuracy
        yield f"{name}_delta", probe.delta
        yield f"{name}_delta_low", probe.low
        yield f"{name}_delta_high", probe.high


def _steps_of(record: RunRecord, first: str, others: Sequence[Curve]) -> dict[str, str | float]:
    """Where a run is at the first variant's final loss; empty while there is none."""
    if not others or not record.curve:
        return {}
    (steps,) = speed_up([record.curve], others).steps
    return {f"steps_to_{first}": "never" if steps is None else steps}


def _runs(collected: Collected) -> Iterator[RunRecord]:
    for records in collected.runs.values():
        yield from records.values()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

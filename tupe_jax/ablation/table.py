"""The table of a study: Markdown with a row for each variant, CSV with a row for each run."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tupe_jax.ablation.config import AblationConfig, run_config, training_flops
from tupe_jax.ablation.convergence import SpeedUp, first_crossing
from tupe_jax.ablation.results import RunRecord, StudyResults
from tupe_jax.ablation.work_plan import best_rate
from tupe_jax.config.schema import Config
from tupe_jax.lab.length_extrapolation import LengthScore
from tupe_jax.utils.text import markdown_table

NOTHING, UNFINISHED, NO_GOAL = "-", "*", "no goal"
PERCENTAGES = {"accuracy", "f1"}
"""Metrics shown as percentages; correlations are shown times 100 instead."""

Value = Callable[[RunRecord], float | None]


def _of_mean_matrix(measure: str) -> Value:
    return lambda record: record.measures.get(measure)


def _mean_of_heads(measure: str) -> Value:
    return lambda record: record.of_heads.get(measure)


SHOWN_MEASURES: dict[str, Value] = {
    "locality": _of_mean_matrix("locality"),
    "symmetry": _of_mean_matrix("symmetry"),
    # Per head: in a mean matrix a left head and a right head cancel.
    "mirror symmetry of heads": _mean_of_heads("mirror_symmetry"),
}
"""The two metrics of Chen et al. (2023), and one that detects one-sided heads."""


@dataclass(frozen=True)
class RunColumn:
    """A number of every run and its format."""

    title: str
    value: Value
    digits: int
    scale: float = 1.0


def columns_of(results: StudyResults) -> list[RunColumn]:
    """The columns for all measurements of the study."""
    config = results.config
    columns = [_loss_column(objective, config) for objective in config.objectives]
    columns += [_goal_column(goal, config) for goal in config.measure.goals]
    columns += [_score_column(task, results) for task in config.downstream.tasks]
    columns += [RunColumn(name, value, 3) for name, value in SHOWN_MEASURES.items()]
    if config.measure.minimal_pairs:
        columns.append(RunColumn("minimal pairs, %", _all_pairs, 1, 100))
    if longest := _longest(config):
        columns.append(_length_column(longest, config.pretrain.data.length))
    probes = dict.fromkeys(name for record in _runs(results) for name in record.probes)
    return columns + [_probe_column(name) for name in probes]


def _loss_column(objective: str, config: AblationConfig) -> RunColumn:
    """The losses of one objective; losses of different objectives are in different columns."""
    of = "" if len(config.objectives) == 1 else f" of {objective}"
    return RunColumn(
        f"validation loss{of}, nats",
        lambda r: r.final_loss if r.objective == objective else None,
        3,
    )


def _goal_column(goal: float, config: AblationConfig) -> RunColumn:
    """The step at which a loss is reached, such as one just below that of unigram frequencies."""
    objective = config.objectives[0]
    return RunColumn(
        f"steps to {goal:g} nats",
        lambda r: first_crossing(r.curve, goal) if r.curve and r.objective == objective else None,
        0,
    )


def _score_column(task: str, results: StudyResults) -> RunColumn:
    metrics = {record.scores[task].metric for record in _runs(results) if task in record.scores}
    unit = "%" if metrics <= PERCENTAGES else f"100 x {metrics.pop()}"
    return RunColumn(
        f"{task}, {unit}", lambda r: r.scores[task].best if task in r.scores else None, 1, 100
    )


def _probe_column(name: str) -> RunColumn:
    return RunColumn(
        f"{name}, points", lambda r: r.probes[name].delta if name in r.probes else None, 1, 100
    )


def _longest(config: AblationConfig) -> int | None:
    """The longest measured input, if it is longer than those in training."""
    lengths = config.measure.lengths
    trained = config.pretrain.data.length
    return max(lengths) if trained in lengths and max(lengths) > trained else None


def _length_column(length: int, trained: int) -> RunColumn:
    """How much worse a model is on longer inputs; a loss on other text would not be comparable."""

    def excess(record: RunRecord) -> float | None:
        scores = best_by_length(record)
        if length not in scores or trained not in scores:
            return None
        return scores[length][0] / scores[trained][0] - 1

    return RunColumn(f"loss at {length} tokens, % above {trained}", excess, 1, 100)


def best_by_length(record: RunRecord) -> dict[int, tuple[float, LengthScore]]:
    """For every length, the lowest loss of all rules and its score; only scores with a loss."""
    best: dict[int, tuple[float, LengthScore]] = {}
    for score in record.lengths:
        if score.loss is not None and score.loss < best.get(score.length, (math.inf,))[0]:
            best[score.length] = score.loss, score
    return best


def _all_pairs(record: RunRecord) -> float | None:
    return record.pairs["all"].accuracy if "all" in record.pairs else None


def markdown(results: StudyResults) -> str:
    """The table, followed by notes on how to read it."""
    config, columns = results.config, columns_of(results)
    steps = results.to_first
    runs = _runs_of_variants(config)
    costs = (
        {name: training_flops(run) for name, run in runs.items()} if _shows_costs(config) else {}
    )
    header = ["variant", "parameters", "learning rate", "seeds", *(c.title for c in columns)]
    header[2:2] = ["training FLOPs"] if costs else []
    header += [f"steps to {results.first}'s final loss"] if steps else []
    rows = [header]
    for variant in config.variants:
        records = list(results.runs[variant.name].values())
        planned = len(config.seeds)
        mark = UNFINISHED if len(records) < planned else ""
        rows.append(
            [
                variant.name,
                f"{records[0].parameters:,}" if records else NOTHING,
                *([f"{costs[variant.name]:.3g}"] if costs else []),
                f"{records[0].learning_rate:g}" if records else NOTHING,
                f"{len(records)}{mark}",
                *(_cell(column, records) for column in columns),
                *([_steps(steps.get(variant.name))] if steps else []),
            ]
        )
    return "\n".join([*markdown_table(rows), "", *_notes(results, steps)])


def _runs_of_variants(config: AblationConfig) -> dict[str, Config]:
    rate, seed = config.learning_rates[0], config.seeds[0]
    return {v.name: run_config(config, v, seed, rate) for v in config.variants}


def _steps(result: SpeedUp | None) -> str:
    """Geometric mean over seeds with its interval."""
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
    """Mean and standard deviation over seeds; the number of seeds if some have no value."""
    found = [column.value(record) for record in records]
    values = [column.scale * value for value in found if value is not None]
    if not values:
        return NOTHING
    mean = f"{statistics.fmean(values):.{column.digits}f}"
    of = f" ({len(values)} of {len(records)} seeds)" if len(values) < len(records) else ""
    if len(values) == 1 or math.inf in values:  # a run that diverged
        return mean + of
    return f"{mean} ± {statistics.stdev(values):.{column.digits}f}{of}"


def _notes(results: StudyResults, steps: Mapping[str, SpeedUp]) -> Iterator[str]:
    config = results.config
    train, data = config.pretrain.train, config.pretrain.data
    yield (
        f"{steps_text(config)} of {train.batch_size} sequences of {data.length} tokens of "
        f"{data.task}. Mean ± standard deviation over seeds. Position-only attention: "
        f"n = {config.measure.length}, {config.measure.words} repeated words. Locality and "
        "symmetry are computed from the mean matrix over layers and heads; mirror symmetry is "
        "computed per head and averaged."
    )
    if len(config.objectives) > 1:
        yield (
            "The variants have different objectives. Their losses are different quantities and are "
            "not compared; compare scores, minimal pairs and probes. Training FLOPs count all "
            "networks of a variant, parameters those of all networks."
        )
    if any(objective == "replaced_token" for objective in config.objectives):
        yield (
            "Minimal pairs of a discriminator (replaced_token): the sentence whose tokens are more "
            "likely all original, by the sum of their log-probabilities."
        )
    if steps:
        yield (
            f"Steps to the mean final validation loss of {results.first}: the geometric "
            "mean over seeds, with a 95 % interval where it is defined. A slower variant ends "
            "above that loss. If only some seeds reach it, the two variants cannot be "
            "distinguished, or the other seeds diverged."
        )
        if not all(result.has_goal for result in steps.values()):
            yield f"{NO_GOAL.capitalize()}: a seed of {results.first} diverged."
    if _longest(config):
        yield (
            "Loss on longer inputs: of the same masked tokens of the validation text, divided into "
            "longer sequences. A table of positions is extended by the rule that is best for the "
            "run and the length."
        )
    if config.downstream.tasks:
        yield (
            "Tasks: the best evaluation on dev, for the learning rate with the best median over "
            "fine-tuning seeds."
        )
    if config.measure.probe_task:
        yield (
            "Shuffle and Random: the change in accuracy of models fine-tuned on "
            f"{config.measure.probe_task} when the word order of pairs of "
            f"{config.measure.probe_source} is changed. In Shuffle-SR another answer is right "
            "after the change; in the other probes the answer stays the same."
        )
    if any(results.tuning.values()):
        yield ""
        yield from _tuning_table(results)
    if results.missing:
        yield ""
        yield f"\\{UNFINISHED} Unfinished runs: {len(results.missing)}."


def _shows_costs(config: AblationConfig) -> bool:
    return config.equal_flops or len(config.objectives) > 1


def steps_text(config: AblationConfig) -> str:
    """The number of steps of the variants: "900 steps", or "900 to 1,200 steps"."""
    steps = [run.train.steps for run in _runs_of_variants(config).values()]
    least, most = min(steps), max(steps)
    return f"{least:,} steps" if least == most else f"{least:,} to {most:,} steps"


def _tuning_table(results: StudyResults) -> Iterator[str]:
    """The loss of every learning rate, which shows whether the grid was wide enough."""
    config = results.config
    if len(config.objectives) > 1:
        yield "Only losses in the same row are comparable: rows differ in their objective."
        yield ""
    rates = sorted(config.learning_rates)
    reported = "not reported" if config.tunes_held_out else "also reported"
    yield (
        f"Final validation loss of seed {config.seed_of_tuning} ({reported} above) by learning "
        "rate:"
    )
    yield ""
    rows = [["variant", *(f"{rate:g}" for rate in rates)]]
    at_the_edge = []
    for variant in config.variants:
        if variant.tuned_as:
            continue
        name, records = variant.name, results.tuning[variant.name]
        losses = {rate: record.final_loss for rate, record in records.items()}
        chosen = best_rate(losses) if len(losses) == len(rates) else None
        if chosen is not None and math.isinf(losses[chosen]):
            chosen = None  # all diverged
        cells = (f"{losses[rate]:.3f}" if rate in losses else NOTHING for rate in rates)
        marked = (
            f"**{cell}**" if rate == chosen else cell
            for rate, cell in zip(rates, cells, strict=True)
        )
        rows.append([name, *marked])
        if chosen in (rates[0], rates[-1]):
            at_the_edge.append(f"{name} ({chosen:g})")
    yield from markdown_table(rows)
    borrowed = [f"{v.name} has that of {v.tuned_as}" for v in config.variants if v.tuned_as]
    if borrowed:
        yield ""
        yield f"Not tuned: {', '.join(borrowed)}."
    if at_the_edge:
        yield ""
        yield f"Best learning rate at the edge of the grid: {', '.join(at_the_edge)}."


def csv_table(results: StudyResults) -> str:
    """Every number of every finished run."""
    first, to_first = results.first, results.to_first
    rows = [
        {**dict(_numbers(record)), **dict(_steps_of(record, first, to_first.get(record.variant)))}
        for record in _runs(results)
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
    for at_length in record.lengths:
        at = f"at_{at_length.length}_{at_length.rule}"
        if at_length.loss is not None:
            yield f"loss_{at}", at_length.loss
        for name, value in at_length.measures.items():
            yield f"{name}_{at}", value
    for name, probe in record.probes.items():
        yield f"{name}_accuracy", probe.accuracy
        yield f"{name}_delta", probe.delta
        yield f"{name}_delta_low", probe.low
        yield f"{name}_delta_high", probe.high


def _steps_of(
    record: RunRecord, first: str, to_first: SpeedUp | None
) -> Iterator[tuple[str, str | float]]:
    """The step at which a run of another variant reaches the first variant's final loss."""
    if to_first is not None and to_first.has_goal and record.curve:
        steps = first_crossing(record.curve, to_first.goal)
        yield f"steps_to_{first}", "never" if steps is None else steps


def _runs(results: StudyResults) -> Iterator[RunRecord]:
    for records in results.runs.values():
        yield from records.values()

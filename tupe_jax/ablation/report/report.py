"""A study as one HTML page: its settings, table and plots, and the limits of each."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from tupe_jax.ablation.config import AblationConfig, run_config
from tupe_jax.ablation.report.html import (
    Content,
    Html,
    ReportSection,
    descriptions,
    element,
    folded,
    from_markdown,
    page,
    table,
)
from tupe_jax.ablation.report.lengths import longer_inputs
from tupe_jax.ablation.report.order import minimal_pairs, probes
from tupe_jax.ablation.report.plots import FinishedRuns
from tupe_jax.ablation.report.positions import attention, structure_and_scores
from tupe_jax.ablation.report.training import convergence, losses
from tupe_jax.ablation.results import RunRecord, StudyResults
from tupe_jax.ablation.table import markdown, steps_text
from tupe_jax.ablation.work_plan import Unit
from tupe_jax.utils.text import quantity

_MOST_LISTED = 12


def html_report(results: StudyResults, command: str) -> str:
    """The whole page; sections without measurements are left out, unfinished runs are listed."""
    config = results.config
    finished = FinishedRuns.of(results)
    sections = [
        _what_was_run(config, command),
        ReportSection("table", "Table", [from_markdown(markdown(results))]),
        *losses(finished),
        *convergence(results),
        *attention(finished),
        *structure_and_scores(finished),
        *longer_inputs(finished),
        *probes(finished),
        *minimal_pairs(finished),
    ]
    variants, seeds = len(config.variants), len(config.seeds)
    title = f"{variants} positional encodings, {seeds} seed{'s' * (seeds > 1)}"
    return page(title, _summary(config), list(_warnings(results)), sections)


def _summary(config: AblationConfig) -> str:
    train, data = config.pretrain.train, config.pretrain.data
    runs = (
        run_config(config, v, config.seeds[0], config.learning_rates[0]).train.steps
        for v in config.variants
    )
    counts = sorted({steps * train.batch_size * data.length for steps in runs})
    tokens = " to ".join(dict.fromkeys(map(quantity, (counts[0], counts[-1]))))
    tasks = config.downstream.tasks
    then = f", then fine-tuned on {_listed(tasks)}" if tasks else ", not fine-tuned"
    return f"Each pre-trained for {steps_text(config)}, {tokens} tokens, on {data.task}{then}."


def _warnings(results: StudyResults) -> Iterator[Html]:
    missing = results.missing
    if missing:
        listed = [element("li", _unit(unit)) for unit in missing[:_MOST_LISTED]]
        if len(missing) > _MOST_LISTED:
            listed.append(element("li", f"and {len(missing) - _MOST_LISTED} more"))
        yield element(
            "div",
            element("b", f"Unfinished runs: {len(missing)}. "),
            "This page shows the finished runs; run the same command to resume the study.",
            element("ul", *listed),
            css="note",
        )
    diverged = [r for runs in results.runs.values() for r in runs.values() if r.diverged]
    if diverged:
        yield element(
            "div",
            element("b", f"Diverged runs: {len(diverged)}. "),
            "They are in no plot; the table shows inf, and they never reach a goal.",
            element("ul", *(element("li", _run(record)) for record in diverged)),
            css="note",
        )


def _unit(unit: Unit) -> str:
    rate = "" if unit.learning_rate is None else f", learning rate {unit.learning_rate:g} (tuning)"
    return f"{unit.variant}, seed {unit.seed}{rate}"


def _run(record: RunRecord) -> str:
    return f"{record.variant}, seed {record.seed}, learning rate {record.learning_rate:g}"


def _what_was_run(config: AblationConfig, command: str) -> ReportSection:
    everything = json.dumps(asdict(config), indent=1, default=str)
    return ReportSection(
        "run",
        "What was run",
        [
            element("pre", element("code", command), css="wrapped"),
            descriptions(_settings(config)),
            _variants(config),
            folded("All settings", element("pre", element("code", everything))),
        ],
    )


def _settings(config: AblationConfig) -> Iterator[tuple[str, Content]]:
    model, data, train = config.pretrain.model, config.pretrain.data, config.pretrain.train
    yield (
        "model",
        f"{model.num_layers} layers, {model.hidden_size} wide, {model.num_heads} heads, "
        f"{model.vocab_size:,} tokens in the vocabulary",
    )
    yield "text", data.task
    yield (
        "pre-training",
        f"{steps_text(config)} of {train.batch_size} sequences of {data.length} tokens; "
        f"validated every {config.pretrain.eval.every} steps",
    )
    rates = _listed([f"{rate:g}" for rate in config.learning_rates])
    tuned = len(config.learning_rates) > 1
    yield (
        "learning rate",
        f"for each variant the best of {rates}, by the final validation loss of seed "
        f"{config.seeds[0]}"
        if tuned
        else f"{rates} for all, not tuned: a variant with another optimum is at a disadvantage",
    )
    yield "seeds", _listed(config.seeds)
    downstream = config.downstream
    if downstream.tasks:
        yield (
            "fine-tuning",
            f"{_listed(downstream.tasks)}; learning rates "
            f"{_listed([f'{rate:g}' for rate in downstream.learning_rates])}, "
            f"{len(downstream.seeds)} fine-tuning seeds each; the rate with the best median",
        )
    yield (
        "measured",
        f"attention among identical words, n = {config.measure.length} positions, the mean over "
        f"{config.measure.words} words",
    )


def _variants(config: AblationConfig) -> Html:
    rows = []
    for variant in config.variants:
        position = run_config(
            config, variant, config.seeds[0], config.learning_rates[0]
        ).model.position
        others = ", ".join(f"{name}={value}" for name, value in variant.settings.items())
        rows.append(
            [
                variant.name,
                position.absolute,
                position.relative,
                "untied" if position.untie_cls else "tied",
                others,
            ]
        )
    header = ["variant", "absolute", "relative", "[CLS]", "more settings"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return table(header, rows, of_text=True)


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))

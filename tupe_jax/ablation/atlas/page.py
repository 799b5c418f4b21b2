"""The atlas: one self-contained page about all archived studies, with sortable tables and plots.

The numbers are computed here and rounded; `atlas.js` in the page only sorts, filters and draws.
"""

import html
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from string import Template

import numpy as np

from tupe_jax.ablation.archive import encoded
from tupe_jax.ablation.atlas.correlations import Json, comparable_with, correlations, rounded
from tupe_jax.ablation.config import AblationConfig, Variant, run_config
from tupe_jax.ablation.convergence import SpeedUp, mean_curve
from tupe_jax.ablation.report.plots import coarse
from tupe_jax.ablation.results import RunRecord, StudyResults
from tupe_jax.ablation.table import RunColumn, columns_of, steps_text
from tupe_jax.lab.head_kinds import KINDS

_TILE = 32
"""Positions of a drawn attention matrix; longer ones are averaged."""


def atlas_page(data: Sequence[Json]) -> str:
    """The page about these studies, each given by its `study_data`."""
    folder = resources.files(__package__)
    parts = {
        "style": (folder / "atlas.css").read_text(encoding="utf-8"),
        "script": (folder / "atlas.js").read_text(encoding="utf-8"),
        # A text such as "</script>" would end the element that holds the data.
        "data": json.dumps(data, separators=(",", ":")).replace("</", "<\\/"),
        "summary": html.escape(_summary(data)),
    }
    template = (folder / "page.html").read_text(encoding="utf-8")
    return Template(template).substitute(parts)


def _summary(data: Sequence[Json]) -> str:
    runs = sum(study["runs"] + study["tuningRuns"] for study in data)
    hours = sum(study["cpuHours"] for study in data)
    studies = f"{len(data)} stud{'y' if len(data) == 1 else 'ies'}"
    return f"{studies}, {runs} finished runs, {hours:.1f} CPU hours."


def study_data(name: str, command: str, studies: Mapping[str, StudyResults]) -> Json:
    """All that the page shows about a study. Correlations also use the other studies."""
    results = studies[name]
    config = results.config
    columns = columns_of(results)
    steps = results.to_first
    return {
        "name": name,
        "command": command,
        "about": _about(config),
        "runs": sum(map(len, results.runs.values())),
        "tuningRuns": sum(map(len, results.tuning.values())),
        "missing": len(results.missing),
        "cpuHours": rounded(sum(record.cpu_seconds for record in results.records) / 3600),
        "first": results.first,
        "columns": [{"title": column.title, "digits": column.digits} for column in columns],
        "variants": [
            _variant(config, variant, _of_seeds(results, variant), columns, steps)
            for variant in config.variants
        ],
        "correlations": [
            *correlations({name: results}, columns),
            *correlations(comparable_with(name, studies), columns),
        ],
    }


def _about(config: AblationConfig) -> str:
    model, data, train = config.pretrain.model, config.pretrain.data, config.pretrain.train
    rates = ", ".join(f"{rate:g}" for rate in config.learning_rates)
    tuned = f"; learning rate of each variant: the best of {rates} on seed {config.seed_of_tuning}"
    held_out = ", which is not reported" if config.tunes_held_out else ""
    first, *others = config.objectives
    curves = f"; loss curves of {first}, not of {', '.join(others)}" if others else ""
    return (
        f"{model.num_layers} layers, hidden size {model.hidden_size}, "
        f"{model.vocab_size:,} tokens in the vocabulary; {steps_text(config)} of "
        f"{train.batch_size} sequences of {data.length} tokens of {data.task}; seeds "
        f"{', '.join(map(str, config.seeds))}"
        f"{tuned + held_out if len(config.learning_rates) > 1 else f'; learning rate {rates}'}"
        f"{curves}"
    )


def _of_seeds(results: StudyResults, variant: Variant) -> list[RunRecord]:
    return [record for _, record in sorted(results.runs[variant.name].items())]


def _variant(
    config: AblationConfig,
    variant: Variant,
    records: Sequence[RunRecord],
    columns: Sequence[RunColumn],
    steps: Mapping[str, SpeedUp],
) -> Json:
    position = run_config(config, variant, config.seeds[0], config.learning_rates[0]).model.position
    finished = [record for record in records if not record.diverged]
    return {
        "name": variant.name,
        "encoding": variant.encoding,
        "absolute": position.absolute,
        "relative": position.relative,
        "cls": "untied" if position.untie_cls else "tied",
        "settings": ", ".join(_settings(variant)),
        "seeds": len(records),
        "diverged": len(records) - len(finished),
        "rate": records[0].learning_rate if records else None,
        "parameters": records[0].parameters if records else None,
        "values": [_cell(column, finished) for column in columns],
        "steps": _steps(steps.get(variant.name)),
        "curve": _curve([r for r in finished if r.objective == config.objectives[0]]),
        "bias": dict(_bias(finished)),
        "heads": _heads(finished),
        "lengths": list(_lengths(finished)),
    }


def _settings(variant: Variant) -> Iterator[str]:
    yield from (f"{name}={value}" for name, value in variant.settings.items())
    if variant.tuned_as:
        yield f"learning rate of {variant.tuned_as}"


def _cell(column: RunColumn, records: Sequence[RunRecord]) -> Json | None:
    found = [column.value(record) for record in records]
    values = [column.scale * value for value in found if value is not None]
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": rounded(statistics.fmean(values)), "sd": rounded(spread), "n": len(values)}


def _steps(result: SpeedUp | None) -> Json | None:
    """The geometric mean of steps if all seeds reach the first variant's loss, and the ratio."""
    if result is None or not result.has_goal:
        return None
    reached, planned = len(result.reached), len(result.steps)
    mean = statistics.geometric_mean(result.reached) if reached == planned else None
    interval = result.interval and [rounded(bound) for bound in result.interval]
    return {
        "mean": rounded(mean),
        "reached": reached,
        "ratio": rounded(result.ratio),
        "interval": interval,
    }


def _curve(records: Sequence[RunRecord]) -> Json | None:
    """The mean, the lowest and the highest validation loss over seeds, at each evaluation."""
    curves = [np.asarray(record.validation) for record in records if record.validation]
    if not curves:
        return None
    step_E = mean_curve(curves)[:, 0]
    loss_RxE = np.array([curve_Ex2[np.isin(curve_Ex2[:, 0], step_E), 1] for curve_Ex2 in curves])
    lines = {"mean": loss_RxE.mean(0), "low": loss_RxE.min(0), "high": loss_RxE.max(0)}
    return {
        "step": step_E.astype(int).tolist(),
        **{name: [rounded(loss) for loss in line.tolist()] for name, line in lines.items()},
    }


def _bias(records: Sequence[RunRecord]) -> Iterator[tuple[str, list[Json]]]:
    """For each part of the encoding: the smallest, mean and largest bias of all heads and seeds."""
    parts = dict.fromkeys(part for record in records for part in record.bias_sizes)
    for part in parts:
        by_step: dict[int, list[float]] = {}
        for record in records:
            for step, heads in record.bias_sizes.get(part, ()):
                by_step.setdefault(step, []).extend(size for size in heads if size is not None)
        yield (
            part,
            [
                {"step": step, **spread}
                for step, sizes in by_step.items()
                if (spread := _spread(sizes)) is not None
            ],
        )


def _heads(records: Sequence[RunRecord]) -> Json | None:
    """The first seed's attention among identical words, one byte per weight."""
    shown = next((r for r in records if r.matrices_LxHxNxN is not None), None)
    if shown is None or shown.matrices_LxHxNxN is None:
        return None
    tiles_LxHxTxT = coarse(shown.matrices_LxHxNxN.astype(np.float64), _TILE)
    layers, heads, tile, _ = tiles_LxHxTxT.shape
    length = shown.matrices_LxHxNxN.shape[-1]
    kinds = [kind for layer in shown.kinds for kind in layer]
    # `encoded` is relative to the size of a tile, uniform attention to the number of positions.
    relative = tiles_LxHxTxT * length / tile
    return {
        "layers": layers,
        "heads": heads,
        "tile": tile,
        "positions": length,
        "seed": shown.seed,
        "kinds": ", ".join(f"{kinds.count(kind)} {kind}" for kind in KINDS if kind in kinds),
        "bytes": encoded(relative),
    }


def _lengths(records: Sequence[RunRecord]) -> Iterator[Json]:
    """Loss and locality for every length and rule, over seeds; a discriminator has no loss."""
    keys = dict.fromkeys((s.length, s.rule) for record in records for s in record.lengths)
    for length, rule in keys:
        scores = [
            score
            for record in records
            for score in record.lengths
            if (score.length, score.rule) == (length, rule)
        ]
        yield {
            "length": length,
            "rule": rule,
            "loss": _spread([score.loss for score in scores if score.loss is not None]),
            "locality": _spread([score.measures["locality"] for score in scores]),
        }


def _spread(values: Sequence[float]) -> Json | None:
    if not values:
        return None
    found = {"mean": statistics.fmean(values), "low": min(values), "high": max(values)}
    return {name: rounded(value) for name, value in found.items()}

"""Position-only attention against scores: over one study, and over all that can be compared."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tupe_jax.ablation.config import AblationConfig, Variant, run_config
from tupe_jax.ablation.correlation import correlation_within_families, rank_correlation
from tupe_jax.ablation.results import RunRecord, StudyResults
from tupe_jax.ablation.table import NOTHING, SHOWN_MEASURES, RunColumn
from tupe_jax.config.schema import PositionConfig
from tupe_jax.utils.text import markdown_table

Json = dict[str, Any]
_OWN_OF_VARIANTS = ("position", "seed", "peak_learning_rate")


def rounded(value: float | None) -> float | None:
    """Round to five significant digits: enough for a plot, and the same on every machine."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.5g}")


def family_of(position: PositionConfig) -> str:
    """How an encoding enters the model."""
    if position.relative.startswith("attenuated"):
        return "attenuation"
    if position.absolute in ("untied", "mixed"):
        return "projected positions"
    if position.relative in ("t5", "alibi"):
        return "bias by distance"
    if position.relative != "none":
        return "content and distance"
    return "no position" if position.absolute == "none" else "added to the input"


def comparable_with(name: str, studies: Mapping[str, StudyResults]) -> dict[str, StudyResults]:
    """The study, then all others with the same training, tasks and measurements; empty if none."""
    own = studies[name]
    alike = {
        other: results
        for other, results in {name: own, **studies}.items()
        if _shared(results.config) == _shared(own.config) and _data(results) == _data(own)
    }
    return alike if len(alike) > 1 else {}


def _shared(config: AblationConfig) -> Json:
    """The settings of all variants, without those that may differ between studies."""
    values = asdict(config)
    pretrain, measure = values["pretrain"], values["measure"]
    for section in (pretrain, pretrain["model"], pretrain["optimizer"]):
        for setting in _OWN_OF_VARIANTS:
            section.pop(setting, None)
    for section in ("checkpoint", "eval", "watchdog"):
        pretrain.pop(section)
    measure.pop("lengths")
    return {"pretrain": pretrain, "downstream": values["downstream"], "measure": measure}


def _data(results: StudyResults) -> set[str]:
    return {record.data for record in results.records}


def correlations(
    studies: Mapping[str, StudyResults], columns: Sequence[RunColumn]
) -> Iterator[Json]:
    """Correlate each measure of position-only attention with the loss and with every score.

    A variant that several studies share counts once, with the runs of all of them. If different
    variants have the same name, all but the first get the name of their study, too.
    """
    runs: list[tuple[str, RunRecord]] = []
    families: dict[str, str] = {}
    named: list[tuple[Variant, str]] = []
    for study, results in studies.items():
        for variant in results.config.variants:
            name = _name_in(study, variant, named)
            of_seeds = sorted(results.runs[variant.name].items())
            runs += [(name, record) for _, record in of_seeds if record.is_measured]
            config = run_config(results.config, variant, 0, results.config.learning_rates[0])
            families[name] = family_of(config.model.position)
    scores = [column for column in columns if column.title not in SHOWN_MEASURES]
    for title, measure in SHOWN_MEASURES.items():
        for column in scores:
            both = [(name, measure(r), column.value(r)) for name, r in runs]
            there = [
                (v, x, column.scale * y) for v, x, y in both if x is not None and y is not None
            ]
            found = _correlation(there, families)
            if found is not None:
                over = list(studies) if len(studies) > 1 else []
                yield {"measure": title, "score": column.title, "over": over, **found}


def _name_in(study: str, variant: Variant, named: list[tuple[Variant, str]]) -> str:
    """The name of a variant, the same in all studies; a new one is added to `named`."""
    for other, name in named:
        if other == variant:
            return name
    is_taken = any(name == variant.name for _, name in named)
    named.append((variant, f"{variant.name} of {study}" if is_taken else variant.name))
    return named[-1][1]


def correlation_table(found: Sequence[Json]) -> Iterator[str]:
    """Correlations as lines of Markdown, without their points; none if there are none."""
    if not found:
        return
    header = ["measure", "score", "studies", "variants", "correlation", "95 %", "by chance"]
    rows = [[*header, "within families", "95 %", "variants of families"]]
    for one in found:
        within = one["within"]
        rows.append(
            [
                one["measure"],
                one["score"],
                ", ".join(one["over"]) or "this one",
                f"{one['variants']}",
                _signed(one["rho"]),
                _range(one["interval"]),
                "below 0.001" if one["chance"] < 0.001 else f"{one['chance']:.3f}",
                _signed(within["rho"]),
                _range(within["interval"]),
                f"{within['variants']} of {within['families']}",
            ]
        )
    yield from markdown_table(rows)
    yield ""
    yield (
        "Spearman's rank correlation over the means of variants; the 95 % intervals resample "
        "variants with all their runs. By chance: the share of pairings of the means that are at "
        "least as strongly correlated. Within families: variants are ranked among those that enter "
        "the model in the same way, in families of at least three. Among many correlations, some "
        "are strong by chance."
    )


def _signed(rho: float | None) -> str:
    return NOTHING if rho is None else f"{rho:.2f}"


def _range(interval: Sequence[float] | None) -> str:
    return NOTHING if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _correlation(
    points: Sequence[tuple[str, float, float]], families: Mapping[str, str]
) -> Json | None:
    """None if it is not defined."""
    if not points:
        return None
    names, x, y = zip(*points, strict=True)
    found = rank_correlation(x, y, names)
    if found.of_means is None:
        return None
    variants = list(dict.fromkeys(names))
    x_mean = [statistics.fmean(x for v, x, _ in points if v == name) for name in variants]
    y_mean = [statistics.fmean(y for v, _, y in points if v == name) for name in variants]
    within = correlation_within_families(x_mean, y_mean, [families[v] for v in variants])
    return {
        "variants": found.variants,
        "rho": rounded(found.of_means),
        "interval": found.interval and [rounded(bound) for bound in found.interval],
        "chance": rounded(found.by_chance),
        "within": {
            "families": within.families,
            "variants": within.variants,
            "rho": rounded(within.estimate),
            "interval": within.interval and [rounded(bound) for bound in within.interval],
        },
        "points": [[name, rounded(x_of), rounded(y_of)] for name, x_of, y_of in points],
    }

"""An analysis as text, JSON, CSV and plots."""

import csv
import dataclasses
import inspect
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tupe_jax.lab.analysis import Analysis, AttentionMetrics
from tupe_jax.lab.four_terms import TERMS, FourTerms
from tupe_jax.lab.head_kinds import KINDS, count_kinds, reach
from tupe_jax.lab.length_extrapolation import SHOWN_MEASURES, LengthScore
from tupe_jax.lab.metrics import METRICS
from tupe_jax.lab.nli_probes import NliProbes
from tupe_jax.lab.order_sensitivity import OrderSensitivity
from tupe_jax.lab.plots import loss_by_length, probe_deltas, term_matrices
from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path
from tupe_jax.utils.plotting import position_matrices

JSON_FILE, CSV_FILE, TEXT_FILE = "analysis.json", "heads.csv", "report.txt"


def as_text(analysis: Analysis, about: str) -> str:
    """The report, in lines of at most 100 characters."""
    sections = [
        _about(analysis, about),
        _positions(analysis),
        _kinds(analysis),
        *([_terms(analysis.four_terms)] if analysis.four_terms else []),
        *([_order(analysis.order)] if analysis.order else []),
        *([_pairs(analysis)] if analysis.pairs else []),
        *([_lengths(analysis.lengths)] if analysis.lengths else []),
        _probes(analysis.probes),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections)


def _about(analysis: Analysis, about: str) -> Iterator[str]:
    config, position = analysis.config, analysis.config.position
    yield about
    yield (
        f"position.absolute={position.absolute}, position.relative={position.relative}, "
        f"position.untie_cls={position.untie_cls}; {config.num_layers} layers of "
        f"{config.num_heads} heads"
    )


def _positions(analysis: Analysis) -> Iterator[str]:
    words = max(len(metrics.attention.words) for metrics in analysis.position_only.values())
    yield (
        f"Position-only attention, n = {analysis.length} positions without [CLS]: the mean over "
        f"all layers and heads"
    )
    yield f"(identical words: and over {words} words)"
    yield "".join([" " * 26, *(f"{source:>18}" for source in analysis.position_only)])
    for name in METRICS:
        numbers = (f"{metrics.of_mean[name]:18.3f}" for metrics in analysis.position_only.values())
        yield f"  {name.replace('_', ' '):24}" + "".join(numbers)
    if analysis.disagreement is not None:
        yield (
            f"The two sources assign {analysis.disagreement.mean():.1%} of the weight differently "
            f"(mean over heads; maximum {analysis.disagreement.max():.1%})."
        )


def _kinds(analysis: Analysis) -> Iterator[str]:
    yield "Heads by kind (the rule is in tupe_jax/lab/head_kinds.py)"
    yield "".join([" " * 18, *(f"{kind:>10}" for kind in KINDS)])
    for source, metrics in analysis.position_only.items():
        counts = count_kinds(metrics.kinds)
        yield f"  {source:16}" + "".join(f"{counts[kind]:10}" for kind in KINDS)


def _terms(terms: FourTerms) -> Iterator[str]:
    yield "The first layer's logits in four terms: standard deviation over j (mean of heads)"
    yield f"  {'':18}    all  of the variance      without the mean over all i"
    rows = zip(TERMS, terms.spread_4xH, terms.share_4xH, terms.interaction_4xH, strict=True)
    for name, spread_H, share_H, interaction_H in rows:
        yield (
            f"  {name:18} {spread_H.mean():6.3f}           {share_H.mean():6.1%}"
            f"  {interaction_H.mean():30.3f}"
        )
    mixed_H = terms.mixed_share_H
    yield (
        f"Mixed terms: {mixed_H.mean():.1%} of the variance ({mixed_H.min():.1%} to "
        f"{mixed_H.max():.1%} by head; 0 % is flat, 50 % like the other terms),"
    )
    yield f"{terms.mixed_interaction_share_H.mean():.1%} from interactions of word and position"


def _order(order: OrderSensitivity) -> Iterator[str]:
    yield f"Word order in the representation, {order.count} built-in sentences shuffled (95 %)"
    yield f"  sensitivity   {order.sensitivity}    0: bag of words, 1: like another sentence"
    yield f"  recognised    {order.recognised}    nearest original is its own"


def _pairs(analysis: Analysis) -> Iterator[str]:
    left_out = analysis.pairs_too_long
    more = f"; {left_out} longer than the model's positions were left out" if left_out else ""
    yield f"Minimal pairs by pseudo-log-likelihood (accuracy at chance: 0.5; 95 %){more}"
    width = max(map(len, analysis.pairs))
    yield f"  {'':{width}}  pairs  accuracy                 good - bad, nats"
    for name, result in analysis.pairs.items():
        yield f"  {name:{width}} {result.count:6}  {result.accuracy!s:24} {result.delta!s}"


def _probes(probes: NliProbes | str) -> Iterator[str]:
    if isinstance(probes, str):
        yield f"No probes: {probes}"
        return
    more = f"; {probes.too_long} longer than its sequences left out" if probes.too_long else ""
    yield f"Word order changed in {probes.pairs} pairs, head {probes.head} (95 %){more}"
    yield f"  {'':10}  pairs  accuracy before         after                   delta"
    for result in probes.results:
        before, after = str(result.original), str(result.changed)
        yield f"  {result.name:10} {result.count:6}  {before:23} {after:23} {result.delta}"
    yield "Shuffle-3 to Random: the premise is shuffled, the label stays. Shuffle-SR: agent and"
    yield "patient of an entailed hypothesis are exchanged; any label but entailment is right"


def _lengths(scores: Sequence[LengthScore]) -> Iterator[str]:
    yield "Longer inputs, in tokens with [CLS]; the same masked tokens at every length"
    names = "".join(f"{name.replace('_', ' '):>17}" for name in SHOWN_MEASURES)
    yield f"  length  tables         nats{names}"
    for score in scores:
        loss = "      -" if score.loss is None else f"{score.loss:7.3f}"
        measures = "".join(f"{score.measures[name]:17.3f}" for name in SHOWN_MEASURES)
        yield f"  {score.length:6}  {score.rule.replace('_', ' '):12}{loss}{measures}"


def as_json(analysis: Analysis) -> dict[str, Any]:
    """All numbers except the matrices."""
    return {
        "model": dataclasses.asdict(analysis.config),
        "positions": analysis.length,
        "metrics": {name: inspect.cleandoc(metric.about) for name, metric in METRICS.items()},
        "position_only": {
            source: {
                "words": list(metrics.attention.words),
                "of_mean": dict(metrics.of_mean),
                "kinds": count_kinds(metrics.kinds),
                "heads": list(_heads(metrics)),
            }
            for source, metrics in analysis.position_only.items()
        },
        "disagreement": _list(analysis.disagreement),
        "four_terms": analysis.four_terms
        and {
            "spread": dict(zip(TERMS, _list(analysis.four_terms.spread_4xH), strict=True)),
            "interaction": dict(
                zip(TERMS, _list(analysis.four_terms.interaction_4xH), strict=True)
            ),
            "mixed_share": _list(analysis.four_terms.mixed_share_H),
            "mixed_interaction_share": _list(analysis.four_terms.mixed_interaction_share_H),
        },
        "order": analysis.order and dataclasses.asdict(analysis.order),
        "minimal_pairs": {
            name: dataclasses.asdict(result) for name, result in analysis.pairs.items()
        },
        "minimal_pairs_too_long": analysis.pairs_too_long,
        "probes": analysis.probes
        if isinstance(analysis.probes, str)
        else dataclasses.asdict(analysis.probes),
        "lengths": [dataclasses.asdict(score) for score in analysis.lengths],
    }


def _list(array: Any) -> Any:
    return None if array is None else np.asarray(array, np.float64).tolist()


def _heads(metrics: AttentionMetrics) -> Iterator[dict[str, Any]]:
    """One row for each head; layer None stands for a bias that all layers share."""
    shared = len(metrics.kinds) == 1 and metrics.attention.source == "bias"
    for layer, kinds in enumerate(metrics.kinds):
        for head, kind in enumerate(kinds):
            yield {
                "layer": None if shared else layer + 1,
                "head": head + 1,
                "kind": kind,
                "reach": reach(metrics.attention.weights_LxHxNxN[layer, head]),
                **{name: float(values[layer, head]) for name, values in metrics.by_head.items()},
            }


def as_csv(analysis: Analysis) -> str:
    """One row for each source, layer and head."""
    rows = [
        {"source": source, **row}
        for source, metrics in analysis.position_only.items()
        for row in _heads(metrics)
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_report(analysis: Analysis, about: str, folder: Path) -> list[Path]:
    """Write everything to an existing folder, and return the files."""
    texts: Mapping[str, str] = {
        TEXT_FILE: as_text(analysis, about) + "\n",
        JSON_FILE: json.dumps(as_json(analysis), indent=1) + "\n",
        CSV_FILE: as_csv(analysis),
    }
    for name, text in texts.items():
        with atomic_file(folder / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return [*(folder / name for name in texts), *_draw(analysis, folder)]


def _draw(analysis: Analysis, folder: Path) -> Iterator[Path]:
    titles = {
        "bias": "softmax of the position bias",
        "identical words": "attention among identical words",
    }
    for source, metrics in analysis.position_only.items():
        path = folder / f"positions_{source.replace(' ', '_')}.png"
        weights = metrics.attention.weights_LxHxNxN
        shared = source == "bias" and len(weights) == 1
        position_matrices(
            weights[0] if shared else weights, path, title=titles[source], first_position=1
        )
        yield path
    if analysis.four_terms is not None:
        path = folder / "four_terms.png"
        term_matrices(analysis.four_terms, path)
        yield path
    if isinstance(analysis.probes, NliProbes):
        path = folder / "probes.png"
        probe_deltas(analysis.probes, path)
        yield path
    if any(score.loss is not None for score in analysis.lengths):
        path = folder / "lengths.png"
        loss_by_length(analysis.lengths, path)
        yield path

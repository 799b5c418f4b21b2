"""Sections of the report: word-order probes and minimal pairs."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from tupe_jax.ablation.report.html import (
    Html,
    ReportSection,
    cards,
    element,
    how_to_read,
    named_figure,
    not_shown,
    table,
)
from tupe_jax.ablation.report.plots import FinishedRuns, dots
from tupe_jax.ablation.results import PairScore, ProbeScore, RunRecord

AnyScore = TypeVar("AnyScore", ProbeScore, PairScore)
_MARKERS_AND_BARS = (
    "A large marker is the mean over seeds, a small dot a seed; the bar spans the 95 % intervals "
    "of all seeds."
)


def probes(finished: FinishedRuns) -> Iterator[ReportSection]:
    """The accuracy of fine-tuned models after changes of word order."""
    config = finished.config
    accuracies = finished.each(lambda record: record.probes or None)
    names = list(dict.fromkeys(name for of in accuracies.values() for run in of for name in run))
    drawn = _drawn(
        finished,
        lambda record: record.probes,
        lambda probe: (probe.delta, probe.rows),
        "change of accuracy, points",
        unchanged=0,
    )
    if drawn:
        yield ReportSection(
            "probes",
            "Probes of word order",
            [
                how_to_read(
                    f"Models fine-tuned on {config.measure.probe_task} classify sentence pairs of "
                    f"{config.measure.probe_source} before and after words are moved: inside "
                    "constituents of three to six words, anywhere (Random), or by exchanging agent "
                    "and patient, which makes another answer right (Shuffle-SR). Left of the "
                    f"dashed line, accuracy drops. {_MARKERS_AND_BARS} Scales differ."
                ),
                cards(drawn),
                element("p", "Accuracy after the change, %, the mean over seeds:"),
                table(
                    ["variant", *names],
                    [[v, *(_accuracy(of, name) for name in names)] for v, of in accuracies.items()],
                ),
                not_shown(
                    "Whether a model without a drop uses word order or ignores it: compare "
                    "Shuffle-SR with the other probes. Intervals cover the sentence pairs and "
                    "seeds of this study only."
                ),
            ],
        )


def _accuracy(runs: Sequence[Mapping[str, ProbeScore]], name: str) -> str:
    found = [run[name].accuracy for run in runs if name in run]
    return f"{100 * statistics.fmean(found):.1f}" if found else ""


def minimal_pairs(finished: FinishedRuns) -> Iterator[ReportSection]:
    """How often pre-trained models prefer the grammatical sentence."""
    drawn = _drawn(
        finished,
        lambda record: record.pairs,
        lambda score: (score.accuracy, score.pairs),
        "accuracy, %",
        unchanged=50,
        limits=(-2, 102),
    )
    if drawn:
        yield ReportSection(
            "pairs",
            "Minimal pairs",
            [
                how_to_read(
                    "How often the pre-trained model assigns the grammatical one of two sentences "
                    "the higher pseudo-log-likelihood. The dashed line is chance. "
                    f"{_MARKERS_AND_BARS}"
                ),
                cards(drawn),
                not_shown(
                    "Word order alone: in most pairs the words differ, too; “same words” has only "
                    "pairs with the same words. The sentences are of the built-in grammar, not "
                    "of English in general."
                ),
            ],
        )


def _drawn(
    finished: FinishedRuns,
    scores_of: Callable[[RunRecord], Mapping[str, AnyScore]],
    value_and_count: Callable[[AnyScore], tuple[float, int]],
    about: str,
    *,
    unchanged: float,
    limits: tuple[float, float] | None = None,
) -> list[Html]:
    """A figure for each probe or phenomenon, in percent."""
    scores = finished.each(scores_of)
    names = dict.fromkeys(name for runs in scores.values() for of_run in runs for name in of_run)
    figures = []
    for name in names:
        found = {
            variant: [of_run[name] for of_run in runs if name in of_run]
            for variant, runs in scores.items()
        }
        there = {variant: of_variant for variant, of_variant in found.items() if of_variant}
        _, count = value_and_count(next(iter(there.values()))[0])
        svg = dots(
            {v: [100 * value_and_count(score)[0] for score in of] for v, of in there.items()},
            finished.styles,
            f"{about.split()[0]}-{name.replace(' ', '-')}",
            about,
            bars={
                v: (100 * min(s.low for s in of), 100 * max(s.high for s in of))
                for v, of in there.items()
            },
            line=unchanged,
            limits=limits,
        )
        figures.append(named_figure(name, f"{count:,} pairs", svg))
    return figures

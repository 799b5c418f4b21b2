"""Of the report: what models notice of the order of words."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tupe_jax.ablation.finished import Finished
from tupe_jax.ablation.page import Html, Section, cards, how_to_read, named_figure, not_shown
from tupe_jax.ablation.plots import dots
from tupe_jax.ablation.record import PairScore, ProbeScore, RunRecord

Score = TypeVar("Score", ProbeScore, PairScore)
_MARKERS_AND_BARS = (
    "A large marker is the mean over seeds, a small dot a seed; the bar spans the 95 % intervals "
    "of all seeds."
)


def probes(finished: Finished) -> Iterator[Section]:
    """What a change of word order does to fine-tuned models."""
    drawn = _drawn(
        finished,
        lambda record: record.probes,
        lambda probe: (probe.delta, probe.rows),
        "change of accuracy, points",
        unchanged=0,
    )
    if drawn:
        yield Section(
            "probes",
            "Probes of word order",
            [
                how_to_read(
                    f"Models fine-tuned on {finished.config.measure.probe_task} answer sentence "
                    "pairs before and after words are moved: inside constituents of three to six "
                    "words, anywhere (Random), or agent and patient exchanged, which makes another "
                    "answer right (Shuffle-SR). Left of the dashed line, accuracy is lost. "
                    f"{_MARKERS_AND_BARS} Scales differ."
                ),
                cards(drawn),
                not_shown(
                    "Whether a model that loses nothing has understood the order or ignores it: "
                    "read Shuffle-SR beside the others. Intervals are over sentence pairs and "
                    "seeds that were run, not over all there might be."
                ),
            ],
        )


def minimal_pairs(finished: Finished) -> Iterator[Section]:
    """Which of two sentences the pre-trained models prefer."""
    drawn = _drawn(
        finished,
        lambda record: record.pairs,
        lambda score: (score.accuracy, score.pairs),
        "accuracy, %",
        unchanged=50,
        limits=(-2, 102),
    )
    if drawn:
        yield Section(
            "pairs",
            "Minimal pairs",
            [
                how_to_read(
                    "How often the pre-trained model finds the English one of two sentences "
                    "likelier, by pseudo-log-likelihood. The dashed line is guessing. "
                    f"{_MARKERS_AND_BARS}"
                ),
                cards(drawn),
                not_shown(
                    "Order alone, where the two sentences differ in their words, too: “same words” "
                    "has only pairs that do not. The sentences are of the built-in grammar, not "
                    "of English at large."
                ),
            ],
        )


def _drawn(
    finished: Finished,
    scores_of: Callable[[RunRecord], Mapping[str, Score]],
    value_and_count: Callable[[Score], tuple[float, int]],
    about: str,
    *,
    unchanged: float,
    limits: tuple[float, float] | None = None,
) -> list[Html]:
    """A figure for each name that a score has, fractions as percent."""
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
            finished.looks,
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

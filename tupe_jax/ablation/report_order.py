"""Of the report: what models notice of the order of words."""

import statistics
from collections.abc import Callable, Iterator, Mapping

from tupe_jax.ablation.finished import Finished
from tupe_jax.ablation.page import Html, Section, cards, how_to_read, named_figure, not_shown
from tupe_jax.ablation.plots import Estimate, dots
from tupe_jax.ablation.record import PairScore, ProbeScore, RunRecord


def probes(finished: Finished) -> Iterator[Section]:
    """What a change of word order does to fine-tuned models."""

    def look_up(name: str) -> Callable[[RunRecord], ProbeScore | None]:
        return lambda record: record.probes.get(name)

    drawn = []
    for name in _names(finished, lambda record: record.probes):
        found = finished.each(look_up(name))
        points = {v: [(p.delta, p.low, p.high) for p in scores] for v, scores in found.items()}
        rows = next(iter(found.values()))[0].rows
        drawn.append(
            _card(finished, points, name, f"{rows:,} pairs", "change of accuracy, points", 0)
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
                    "answer right (Shuffle-SR). Left of the dashed line, accuracy is lost. A large "
                    "marker is the mean over seeds, a small dot a seed; the bar spans the 95 % "
                    "intervals of all seeds. Scales differ."
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

    def look_up(name: str) -> Callable[[RunRecord], PairScore | None]:
        return lambda record: record.pairs.get(name)

    drawn = []
    for name in _names(finished, lambda record: record.pairs):
        found = finished.each(look_up(name))
        points = {v: [(p.accuracy, p.low, p.high) for p in scores] for v, scores in found.items()}
        pairs = next(iter(found.values()))[0].pairs
        drawn.append(
            _card(finished, points, name, f"{pairs:,} pairs", "accuracy, %", 50, (-2, 102))
        )
    if drawn:
        yield Section(
            "pairs",
            "Minimal pairs",
            [
                how_to_read(
                    "How often the pre-trained model finds the English one of two sentences "
                    "likelier, by pseudo-log-likelihood. The dashed line is guessing. A large "
                    "marker is the mean over seeds, a small dot a seed; the bar spans the 95 % "
                    "intervals of all seeds."
                ),
                cards(drawn),
                not_shown(
                    "Order alone, where the two sentences differ in their words, too: “same words” "
                    "has only pairs that do not. The sentences are of the built-in grammar, not "
                    "of English at large."
                ),
            ],
        )


def _card(
    finished: Finished,
    points: Mapping[str, list[Estimate]],
    name: str,
    size: str,
    about: str,
    line: float,
    limits: tuple[float, float] | None = None,
) -> Html:
    """Fractions as percent: a row for each variant."""
    seeds = {variant: [100 * value for value, _, _ in of] for variant, of in points.items()}
    bars = {
        variant: (
            statistics.fmean(seeds[variant]),
            100 * min(low for _, low, _ in of),
            100 * max(high for _, _, high in of),
        )
        for variant, of in points.items()
    }
    key = f"{about.split()[0]}-{name.replace(' ', '-')}"
    svg = dots(seeds, finished.looks, key, about, intervals=bars, line=line, limits=limits)
    return named_figure(name, size, svg)


def _names(finished: Finished, of: Callable[[RunRecord], Mapping[str, object]]) -> list[str]:
    found = (name for records in finished.runs.values() for r in records for name in of(r))
    return list(dict.fromkeys(found))

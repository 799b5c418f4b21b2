"""The parts of the report that are drawn or computed from runs; one that has no numbers is left
out. Each says how to read it and what it does not show.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tupe_jax.ablation.collect import Collected
from tupe_jax.ablation.config import AblationConfig
from tupe_jax.ablation.convergence import SpeedUp, speed_up
from tupe_jax.ablation.correlation import RankCorrelation, rank_correlation
from tupe_jax.ablation.page import Content, Html, Section, element, figure, table
from tupe_jax.ablation.plots import (
    Estimate,
    Look,
    attention_scale,
    dots,
    head_matrices,
    looks_of,
    loss_curves,
    scale_of,
    scatter,
    swatch,
)
from tupe_jax.ablation.record import RunRecord
from tupe_jax.ablation.table import SHOWN_MEASURES
from tupe_jax.lab.head_kinds import KINDS

_MEAN_OF_TASKS = "mean of tasks"


@dataclass(frozen=True)
class Finished:
    """The runs that can be drawn, by variant in the study's order, and how each is drawn."""

    config: AblationConfig
    runs: Mapping[str, Sequence[RunRecord]]
    looks: Mapping[str, Look]

    @classmethod
    def of(cls, collected: Collected) -> "Finished":
        runs = {
            variant: [record for _, record in sorted(of_variant.items()) if not record.diverged]
            for variant, of_variant in collected.runs.items()
        }
        return cls(
            collected.config,
            {variant: records for variant, records in runs.items() if records},
            looks_of([variant.name for variant in collected.config.variants]),
        )

    def legend(self, key: str) -> Html:
        items = (
            element("li", Html(swatch(self.looks[variant], f"{key}{number}")), variant)
            for number, variant in enumerate(self.runs)
        )
        return element("ul", *items, css="legend")

    def values(self, of: Callable[[RunRecord], float]) -> dict[str, list[float]]:
        return {name: [of(record) for record in records] for name, records in self.runs.items()}


def losses(finished: Finished) -> Iterator[Section]:
    """Curves of all variants, their later half enlarged, and where each seed ends."""
    if not finished.runs:
        return
    curves = {name: [r.validation for r in records] for name, records in finished.runs.items()}
    half = finished.config.pretrain.train.steps // 2
    ends = dots(
        finished.values(lambda record: record.final_loss),
        finished.looks,
        "ends",
        "final validation loss, nats",
    )
    yield Section(
        "loss",
        "Validation loss",
        [
            _how("The lower the better. A line is the mean over seeds; the shade reaches from the "
                 "lowest to the highest seed."),
            finished.legend("loss"),
            _grid(
                figure(loss_curves(curves, finished.looks, "whole"), "The whole run."),
                figure(
                    loss_curves(curves, finished.looks, "late", half),
                    "The second half, enlarged: its scale does not begin at 0.",
                ),
                figure(ends, "The end of each run: a small dot for each seed, a large marker for "
                             "their mean."),
            ),
            _not_shown(
                f"{_seeds(finished)} say how much luck there is, not what more steps, a larger "
                "model or other text would change. Curves under a falling learning rate bend down "
                "at their end: a shorter run is not the beginning of a longer one."
            ),
        ],
    )  # fmt: skip


def convergence(finished: Finished) -> Iterator[Section]:
    """Steps to the first variant's final loss, and everyone to everyone's."""
    if len(finished.runs) < 2:
        return
    curves = {name: [r.validation for r in records] for name, records in finished.runs.items()}
    goal_name, *others = finished.runs
    to_goal = {name: speed_up(curves[name], curves[goal_name]) for name in others}
    goal = next(iter(to_goal.values()))
    steps = (
        ""
        if goal.goal_steps is None
        else f" It was there itself after {goal.goal_steps:,.0f} steps."
    )
    yield Section(
        "convergence",
        f"Steps to the final loss of {goal_name}",
        [
            _how(
                f"The goal is {goal.goal:.3f} nats, the mean final validation loss of {goal_name}, "
                f"the first variant of the study.{steps} Each seed's curve, straight between "
                "evaluations and not smoothed, is followed until it is at the goal for the first "
                "time. The speed-up is a ratio of steps (geometric mean over seeds); its interval "
                "of 95 % is Welch's, of the logarithms, with the seeds of both variants."
            ),
            table(
                ["variant", "seeds that get there", "steps, mean", "steps, fewest to most",
                 "speed-up", "95 %"],
                [[name, *_speed_up_cells(result)] for name, result in to_goal.items()],
            ),
            element(
                "details",
                element("summary", "Every variant to every other one's final loss"),
                element("p", "How many times fewer steps the variant of the row needs than that "
                             "of the column, to the column's final loss; “never” if not every "
                             "seed gets there."),
                table(
                    ["", *curves],
                    [
                        [name, *("·" if name == other else _ratio(speed_up(of, curves[other]))
                                 for other in curves)]
                        for name, of in curves.items()
                    ],
                ),
            ),
            _not_shown(
                "Seconds: a step of one variant may cost more than one of another. Nor how soon a "
                "run made to end at the goal would get there; its learning rate would have fallen "
                "by then, so it would be sooner. Where the goal lies on a plateau, a small "
                "difference of losses is a large one of steps."
            ),
        ],
    )  # fmt: skip


def _speed_up_cells(result: SpeedUp) -> list[str]:
    reached = result.reached
    count = f"{len(reached)} of {len(result.steps)}"
    if not reached:
        return [count, "never", "", "", ""]
    interval = result.interval
    return [
        count,
        f"{statistics.geometric_mean(reached):,.0f}" + " of those" * (result.ratio is None),
        f"{min(reached):,.0f} to {max(reached):,.0f}",
        _ratio(result),
        "not defined" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
    ]


def _ratio(result: SpeedUp) -> str:
    return "never" if result.ratio is None else f"{result.ratio:.2f}x"


def attention(finished: Finished) -> Iterator[Section]:
    """Attention by position of each variant's first seed."""
    shown = {
        name: next((r for r in records if r.matrices_LxHxNxN is not None), None)
        for name, records in finished.runs.items()
    }
    matrices = {
        name: record.matrices_LxHxNxN
        for name, record in shown.items()
        if record is not None and record.matrices_LxHxNxN is not None
    }
    if not matrices:
        return
    scale = scale_of(list(matrices.values()))
    cards = [
        figure(
            head_matrices(
                matrix_LxHxNxN, scale, f"heads{number}", f"attention by position of {name}"
            ),
            Html(f"{element('b', name).text}, {_kinds(shown[name])}"),
            above=True,
        )
        for number, (name, matrix_LxHxNxN) in enumerate(matrices.items())
    ]
    length = finished.config.measure.length
    yield Section(
        "heads",
        "What heads learn about positions",
        [
            _how(
                f"Each tile is a head, each row of tiles a layer, of seed "
                f"{finished.config.seeds[0]} or the first that is there: how much each of "
                f"{length} positions (down) attends to each (across) when all words are the same, "
                "relative to even attention. A bright diagonal is attention to the word itself and "
                "its neighbours."
            ),
            element("div", Html(attention_scale(scale, "scale")), css="scale"),
            element("div", *cards, css="grid"),
            _not_shown(
                "What heads do with real words; other seeds, whose heads come in another order; "
                "and [CLS], which is left out."
            ),
        ],
    )


def _kinds(record: RunRecord | None) -> str:
    heads = [kind for layer in (record.kinds if record else ()) for kind in layer]
    return ", ".join(f"{heads.count(kind)} {kind}" for kind in KINDS if kind in heads)


def structure_and_scores(finished: Finished) -> Iterator[Section]:
    """Locality and symmetry against what fine-tuning reached."""
    tasks = finished.config.downstream.tasks
    scored = {
        name: [r for r in records if r.measures and all(task in r.scores for task in tasks)]
        for name, records in finished.runs.items()
    }
    scored = {name: records for name, records in scored.items() if records}
    if not tasks or not scored:
        return
    targets = {task: _score_of(task) for task in tasks}
    if len(tasks) > 1:
        targets = {_MEAN_OF_TASKS: lambda r: statistics.fmean(of(r) for of in each), **targets}
    each = [_score_of(task) for task in tasks]
    main = next(iter(targets))

    def correlation(measure: str, score: Callable[[RunRecord], float]) -> RankCorrelation:
        runs = [record for records in scored.values() for record in records]
        return rank_correlation(
            [r.measures[measure] for r in runs], [score(r) for r in runs], [r.variant for r in runs]
        )

    plots = [
        figure(
            scatter(
                {
                    name: [(r.measures[measure], targets[main](r)) for r in records]
                    for name, records in scored.items()
                },
                finished.looks,
                f"{measure}-score",
                _spoken(measure),
                f"{main}, %",
            ),
            _correlation_text(correlation(measure, targets[main])),
        )
        for measure in SHOWN_MEASURES
    ]
    rows = [
        [_spoken(measure), target, *_correlation_cells(correlation(measure, score))]
        for measure in SHOWN_MEASURES
        for target, score in targets.items()
    ]
    yield Section(
        "structure",
        "Locality and symmetry against downstream score",
        [
            _how(
                "Locality and symmetry are those of the mean matrix over layers and heads "
                "(symmetry as published does not see one-sidedness; mirror symmetry does). A large "
                "marker is a variant, a small dot a run. Spearman's correlation asks only whether "
                "the orders agree: 1 if they do, -1 if one is the other reversed."
            ),
            finished.legend("structure"),
            element("div", *plots, css="grid"),
            table(
                ["measure", "score", "over variants", "95 %", "as strong by chance", "over runs",
                 "95 %"],
                rows,
            ),
            _not_shown(
                "That one causes the other: variants differ in more than this. The interval "
                "resamples variants with all their runs, for runs of one variant are nearly copies "
                "of one another; with so few variants it is wide, and “by chance” is the share of "
                "all pairings of variants and scores that look as related. Of "
                f"{len(rows)} correlations some look strong by luck."
            ),
        ],
    )  # fmt: skip


def _score_of(task: str) -> Callable[[RunRecord], float]:
    return lambda record: 100 * record.scores[task].best


def _correlation_text(found: RankCorrelation) -> Content:
    if found.of_means is None:
        return "Rank correlation: not defined (fewer than three variants, or no differences)."
    interval = _interval_or(found.interval, "no interval")
    return Html(f"Rank correlation {element('b', f'{found.of_means:.2f}').text} ({interval}).")


def _correlation_cells(found: RankCorrelation) -> list[str]:
    return [
        *_estimate_cells(found.of_means, found.interval),
        "" if found.by_chance is None else f"{found.by_chance:.3f}",
        *_estimate_cells(found.of_runs, found.runs_interval),
    ]


def _estimate_cells(estimate: float | None, interval: tuple[float, float] | None) -> list[str]:
    if estimate is None:
        return ["not defined", ""]
    return [f"{estimate:.2f}", _interval_or(interval, "none")]


def _interval_or(interval: tuple[float, float] | None, nothing: str) -> str:
    return nothing if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def probes(finished: Finished) -> Iterator[Section]:
    """What changes of word order do to a fine-tuned model."""
    names = _names(finished, lambda record: record.probes)
    if not names:
        return
    cards = []
    for number, name in enumerate(names):
        found = {
            variant: [
                (100 * p.delta, 100 * p.low, 100 * p.high)
                for p in (r.probes.get(name) for r in records)
                if p is not None
            ]
            for variant, records in finished.runs.items()
        }
        rows = next(
            r.probes[name].rows for rs in finished.runs.values() for r in rs if name in r.probes
        )
        cards.append(_interval_card(finished, found, f"probe{number}", name, f"{rows:,} pairs",
                                    "change of accuracy, points", 0.0))  # fmt: skip
    yield Section(
        "probes",
        "Probes of word order",
        [
            _how(
                f"Models fine-tuned on {finished.config.measure.probe_task} answer sentence pairs "
                "before and after words are moved: inside constituents of three to six words, "
                "anywhere (Random), or agent and patient exchanged, which makes another answer "
                "right (Shuffle-SR). 0: the change is not noticed, or noticed and answered as "
                "well. A large marker is the mean over seeds, the bar reaches from the lowest end "
                "to the highest end of the seeds' 95 % intervals. The scales differ."
            ),
            element("div", *cards, css="grid"),
            _not_shown(
                "Whether a model that loses nothing understood the order or ignores it: read "
                "Shuffle-SR beside the others. Intervals are over sentence pairs of one set."
            ),
        ],
    )


def minimal_pairs(finished: Finished) -> Iterator[Section]:
    """Which of two sentences the pre-trained model prefers."""
    names = _names(finished, lambda record: record.pairs)
    if not names:
        return
    cards = []
    for number, name in enumerate(names):
        found = {
            variant: [
                (100 * p.accuracy, 100 * p.low, 100 * p.high)
                for p in (r.pairs.get(name) for r in records)
                if p is not None
            ]
            for variant, records in finished.runs.items()
        }
        count = next(
            r.pairs[name].pairs for rs in finished.runs.values() for r in rs if name in r.pairs
        )
        cards.append(_interval_card(finished, found, f"pairs{number}", name, f"{count:,} pairs",
                                    "accuracy, %", 50.0, (0, 100)))  # fmt: skip
    yield Section(
        "pairs",
        "Minimal pairs",
        [
            _how(
                "How often the pre-trained model finds the English one of two sentences likelier "
                "(pseudo-log-likelihood). The dashed line is guessing. Markers and bars as above: "
                "mean over seeds, and all of the seeds' 95 % intervals."
            ),
            element("div", *cards, css="grid"),
            _not_shown(
                "Order alone, where the two sentences differ in their words: “same words” has only "
                "pairs that do not. The sentences are of the built-in grammar."
            ),
        ],
    )


def _interval_card(
    finished: Finished,
    found: Mapping[str, Sequence[Estimate]],
    key: str,
    name: str,
    size: str,
    about: str,
    line: float,
    limits: tuple[float, float] | None = None,
) -> Html:
    there = {variant: estimates for variant, estimates in found.items() if estimates}
    seeds = {variant: [value for value, _, _ in of] for variant, of in there.items()}
    whole = {
        variant: (
            statistics.fmean(seeds[variant]),
            min(low for _, low, _ in of),
            max(high for _, _, high in of),
        )
        for variant, of in there.items()
    }
    svg = dots(
        seeds, finished.looks, key, about, intervals=whole, line=line, limits=limits
    )
    return figure(svg, Html(f"{element('b', name).text}, {size}"), above=True)


def _names(finished: Finished, of: Callable[[RunRecord], Mapping[str, object]]) -> list[str]:
    found = (name for records in finished.runs.values() for r in records for name in of(r))
    return list(dict.fromkeys(found))


def _seeds(finished: Finished) -> str:
    count = max(map(len, finished.runs.values()))
    return "One seed cannot" if count == 1 else f"{count} seeds"


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _grid(*cards: Html) -> Html:
    return element("div", *cards, css="grid")


def _how(text: str) -> Html:
    return element("p", text)


def _not_shown(text: str) -> Html:
    return element("p", text, css="not")

"""Of the report: how the validation loss falls, and how much sooner for some."""

import statistics
from collections.abc import Iterator

from tupe_jax.ablation.convergence import SpeedUp, speed_up
from tupe_jax.ablation.report.html import (
    ReportSection,
    cards,
    element,
    figure,
    folded,
    how_to_read,
    not_shown,
    table,
)
from tupe_jax.ablation.report.plots import FinishedRuns, dots, loss_curves
from tupe_jax.ablation.results import StudyResults


def losses(finished: FinishedRuns) -> Iterator[ReportSection]:
    """Curves of all variants, their later half enlarged, and where each seed ends."""
    curves, styles = finished.each(lambda record: record.validation or None), finished.styles
    if not curves:
        return
    ends = finished.each(lambda record: record.final_loss if record.validation else None)
    seeds = max(map(len, ends.values()))
    half = finished.config.pretrain.train.steps // 2
    yield ReportSection(
        "loss",
        "Validation loss",
        [
            how_to_read(
                "The lower the better. A line is the mean over seeds; the shade reaches from the "
                "lowest to the highest seed."
            ),
            finished.legend("loss"),
            cards(
                [
                    figure(loss_curves(curves, styles, "whole"), "The whole run."),
                    figure(
                        loss_curves(curves, styles, "late", half),
                        "The second half, enlarged: the scale does not begin at 0.",
                    ),
                    figure(
                        dots(ends, styles, "ends", "final validation loss, nats"),
                        "The end of each run: a small dot for each seed, a large marker for their "
                        "mean.",
                    ),
                ]
            ),
            not_shown(
                ("How much is luck: there is one seed. Nor" if seeds == 1 else
                 f"More than the luck of {seeds} seeds; nor")
                + " what more steps, a larger model or other text would change. A shorter run is "
                "not the beginning of a longer one, whose learning rate falls later."
                + (" The learning rate was chosen by the first seed's loss, which is among those "
                   "shown: a little in favour of all."
                   if len(finished.config.learning_rates) > 1 else "")
            ),
        ],
    )  # fmt: skip


def convergence(collected: StudyResults) -> Iterator[ReportSection]:
    """Steps to the first variant's final loss, and everyone's to everyone's."""
    curves, first, to_first = collected.curves, collected.first, collected.to_first
    if not to_first:
        return
    goal = next(iter(to_first.values()))
    own = "" if goal.goal_steps is None else f", where it was itself after {goal.goal_steps:,.0f}"
    at = f"{goal.goal:.3f} nats, " if goal.has_goal else ""
    everyone = [
        [name, *("·" if name == other else _ratio(speed_up(of, curves[other])) for other in curves)]
        for name, of in curves.items()
    ]
    yield ReportSection(
        "convergence",
        "Convergence",
        [
            how_to_read(
                f"How many steps it takes to reach {at}the mean final validation loss "
                f"of {first}, the study's first variant{own}. The curve of each seed, "
                "straight between evaluations and not smoothed, is followed until it is there for "
                "the first time. Means are geometric. The speed-up is a ratio of mean steps; its "
                "interval of 95 % is Welch's of the logarithms and counts the seeds of both "
                "variants. There is none with one seed, nor if a seed misses the final loss of a "
                f"seed of {first} or is there when it is first evaluated; and no ratio if {first} "
                "itself was there when it was first evaluated. A seed that diverged never gets "
                "there, and its variant sets no goal."
            ),
            table(
                ["variant", "speed-up", "95 %", "mean steps", "fewest to most", "seeds there"],
                [[name, *_cells(result)] for name, result in to_first.items()],
            ),
            folded(
                "Every variant to every other one's final loss",
                element(
                    "p",
                    "How many times fewer steps the variant of the row needs than that of the "
                    "column, to the column's final loss.",
                ),
                table(["", *curves], everyone),
            ),
            not_shown(
                "That a variant is slower: it ends above the goal, so a ratio below 1 is not seen "
                "(unless the other was as good before its end), and one near 1 is shown only where "
                "all seeds happened to be good enough; "
                "read “not all” as not told apart. Nor seconds: a step of one variant may cost "
                "more than one of another. Nor how soon a run made to end at the goal would get "
                "there; its learning rate would have fallen by then, so probably sooner. Where the "
                "goal lies on a plateau, a small difference of losses is a large one of steps."
            ),
        ],
    )  # fmt: skip


def _cells(result: SpeedUp) -> list[str]:
    reached, interval = result.reached, result.interval
    count = f"{len(reached)} of {len(result.steps)}"
    if not reached:
        return [_ratio(result), "", "", "", count]
    most = "at most " if result.is_bound else ""
    of_those = " of those" if len(reached) < len(result.steps) else ""
    return [
        _ratio(result),
        "none" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
        f"{most}{statistics.geometric_mean(reached):,.0f}{of_those}",
        f"{min(reached):,.0f} to {max(reached):,.0f}" if len(reached) > 1 else "",
        count,
    ]


def _ratio(result: SpeedUp) -> str:
    if not result.has_goal:
        return "no goal"
    if len(result.reached) < len(result.steps):
        return "not all" if result.reached else "never"
    if result.ratio is None:
        return "no ratio"
    return f"{'at least ' if result.is_bound else ''}{result.ratio:.2f}x"

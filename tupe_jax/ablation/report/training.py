"""Sections of the report: validation loss and convergence."""

import statistics
from collections.abc import Iterator

from tupe_jax.ablation.config import AblationConfig
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
    """For each objective: the curves of its variants, their second half, the final losses."""
    for number, objective in enumerate(finished.config.objectives):
        yield from _losses_of(finished.of_objective(objective), objective, number)


def _losses_of(finished: FinishedRuns, objective: str, number: int) -> Iterator[ReportSection]:
    curves, styles = finished.each(lambda record: record.validation or None), finished.styles
    if not curves:
        return
    ends = finished.each(lambda record: record.final_loss if record.validation else None)
    seeds = max(map(len, ends.values()))
    half = max(record.validation[-1][0] for of in finished.runs.values() for record in of) // 2
    of = f" of {objective}" if len(finished.config.objectives) > 1 else ""
    key = f"loss{number or ''}"
    yield ReportSection(
        key,
        f"Validation loss{of}",
        [
            how_to_read(
                "Lower is better. A line is the mean over seeds; the shaded area spans the lowest "
                "to the highest seed."
            ),
            finished.legend(key),
            cards(
                [
                    figure(loss_curves(curves, styles, f"whole{number}"), "The whole run."),
                    figure(
                        loss_curves(curves, styles, f"late{number}", half),
                        "The second half, enlarged; the scale does not start at 0.",
                    ),
                    figure(
                        dots(ends, styles, f"ends{number}", "final validation loss, nats"),
                        "The final loss: a small dot for each seed, a large marker for their mean.",
                    ),
                ]
            ),
            not_shown(
                ("The variance between seeds: there is one seed." if seeds == 1 else
                 f"The full variance between seeds: there are {seeds}.")
                + " The effect of more steps, a larger model or other text. A shorter run is not "
                "the start of a longer one, whose learning rate decays later."
                + _choice_of_rates(finished.config)
            ),
        ],
    )  # fmt: skip


def _choice_of_rates(config: AblationConfig) -> str:
    if len(config.learning_rates) == 1:
        return ""
    if config.tunes_held_out:
        return (
            f" The learning rate of a variant was chosen by the loss of seed {config.tuning_seed}, "
            "which is not among the seeds shown."
        )
    return (
        " The learning rate was chosen by the loss of the first seed, which is among the seeds "
        "shown: a small bias in favour of every variant."
    )


def convergence(results: StudyResults) -> Iterator[ReportSection]:
    """Steps to the first variant's final loss, and of each variant to each other one's."""
    curves, first, to_first = results.curves, results.first, results.to_first
    if not to_first:
        return
    goal = next(iter(to_first.values()))
    own = "" if goal.goal_steps is None else f" (reached at step {goal.goal_steps:,.0f})"
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
                f"The number of steps to {at}the mean final validation loss of {first}, the first "
                f"variant of the study{own}: the first crossing of each seed's curve, interpolated "
                "linearly between evaluations and not smoothed. Means are geometric. The speed-up "
                "is a ratio of mean steps. Its 95 % interval is Welch's interval of the logarithms "
                "and counts the seeds of both variants. There is no interval with one seed, or if "
                f"a seed misses the final loss of a seed of {first} or is there at its first "
                f"evaluation. There is no ratio if {first} itself is at the goal at its first "
                "evaluation. A diverged seed never reaches the goal, and its variant sets no goal."
            ),
            table(
                ["variant", "speed-up", "95 %", "mean steps", "fewest to most", "seeds"],
                [[name, *_cells(result)] for name, result in to_first.items()],
            ),
            folded(
                "Each variant to the final loss of each other variant",
                element(
                    "p",
                    "How many times fewer steps the row's variant needs than the column's variant "
                    "to reach the column's final loss.",
                ),
                table(["", *curves], everyone),
            ),
            not_shown(
                "Slower variants: a slower variant ends above the goal, so a ratio below 1 is not "
                "observed (unless the other variant reached its final loss early), and a ratio "
                "near 1 is observed only if all seeds reach the goal. “Not all” means that the two "
                "variants cannot be distinguished. Seconds: a step of one variant may take longer "
                "than a step of another. Runs scheduled to end at the goal: their learning rate "
                "would decay earlier, so they would probably need fewer steps. Where the goal lies "
                "on a plateau, a small difference in loss is a large difference in steps."
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

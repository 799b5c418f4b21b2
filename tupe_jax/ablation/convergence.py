"""How many steps one variant needs to reach the loss at which another ends.

    goal      the mean, over the other's seeds, of the validation loss at its last evaluation
    steps     for each seed of the first: where its curve, straight between evaluations and not
              smoothed, is at the goal for the first time
    speed-up  the steps at which the other's own mean curve first is at the goal (its last ones,
              unless it had been as good before), over the geometric mean of those; none if the
              other was there when it was first evaluated, for then nobody knows since when

A seed that never reaches the goal has no steps, and then there is no speed-up either: a mean over
the others would flatter. A curve that is below the goal at its first evaluation counts with that
one's step, and the speed-up is a bound: at least that much. Noise makes a first crossing early;
validation on the same rows each time leaves little of it. Steps are not seconds: what a step costs
is another question.

A variant that is slower ends, with the same steps, above the goal: a ratio below 1 is not seen
(unless the other had been as good before its end), and one near 1 is there only where every seed
happened to be good enough. "Not all" seeds at the goal means that the two are not told apart, or
that the first is worse. A seed that diverged never reaches a goal, and its variant sets none.

The interval of 95 % is of the geometric mean over all seeds that might have been drawn, on either
side: Welch's t-interval of the logarithms. Seeds of the first vary the crossing at the goal; seeds
of the other vary the goal, and so where the first one's curves cross it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats


@dataclass(frozen=True)
class SpeedUp:
    """One variant on its way to another's final loss."""

    goal: float
    """Nats; not finite if a seed of the other diverged, and then nothing is reached."""
    goal_steps: float | None
    """What the other needed itself; None if there is no goal, or if it was there from the start."""
    steps: tuple[float | None, ...]
    """By seed; None: never reached."""
    interval: tuple[float, float] | None
    """Of the ratio; None if a side has one seed only, or if some seed of the first does not reach
    the final loss of some seed of the other, or is there at its first evaluation."""
    is_bound: bool
    """The ratio is at least what it says: a seed was at the goal when it was first evaluated."""

    @property
    def has_goal(self) -> bool:
        return math.isfinite(self.goal)

    @property
    def reached(self) -> tuple[float, ...]:
        return tuple(steps for steps in self.steps if steps is not None)

    @property
    def steps_interval(self) -> tuple[float, float] | None:
        """Of the geometric mean of steps: what the other needed, over the ratio's."""
        if self.interval is None or self.goal_steps is None:
            return None
        low, high = self.interval
        return self.goal_steps / high, self.goal_steps / low

    @property
    def ratio(self) -> float | None:
        """How many times fewer steps; None unless every seed has reached the goal."""
        if self.goal_steps is None or len(self.reached) < len(self.steps):
            return None
        return self.goal_steps / math.exp(np.log(self.reached).mean())


def speed_up(curves: Sequence[ArrayLike], others: Sequence[ArrayLike]) -> SpeedUp:
    """A curve is [E, 2], step and loss of each evaluation; one for each seed of either variant."""
    mine, theirs = _curves(curves), _curves(others)
    their_mean_Ex2 = mean_curve(theirs)
    if not len(their_mean_Ex2):  # a seed diverged before it was evaluated
        return SpeedUp(math.inf, None, (None,) * len(mine), None, is_bound=False)
    last_step, goal = their_mean_Ex2[-1]
    finals = [float(curve_Ex2[curve_Ex2[:, 0] == last_step, 1][0]) for curve_Ex2 in theirs]
    at_once = _begins_at(their_mean_Ex2, goal)
    goal_steps = None if at_once else first_crossing(their_mean_Ex2, goal)
    steps = tuple(first_crossing(curve_Ex2, goal) for curve_Ex2 in mine)
    is_bound = any(_begins_at(curve_Ex2, goal) for curve_Ex2 in mine)
    interval = None if goal_steps is None else _interval(mine, goal, finals, goal_steps)
    return SpeedUp(float(goal), goal_steps, steps, interval, is_bound)


def first_crossing(curve: ArrayLike, goal: float) -> float | None:
    """The step at which a curve is down at the goal for the first time, at least 1."""
    curve_Ex2: NDArray[np.float64] = np.asarray(curve, np.float64)
    there = np.flatnonzero(curve_Ex2[:, 1] <= goal)
    if not math.isfinite(goal) or not len(there):
        return None
    at = int(there[0])
    step, loss = curve_Ex2[at]
    # No straight line leads down from a loss that is not finite.
    if at > 0 and np.isfinite(curve_Ex2[at - 1, 1]):
        step_before, loss_before = curve_Ex2[at - 1]
        step -= (step - step_before) * (goal - loss) / (loss_before - loss)
    return max(1.0, float(step))  # an evaluation before training would make ratios infinite


def _begins_at(curve_Ex2: NDArray[np.float64], goal: float) -> bool:
    """Whether the first evaluation is down at the goal: the crossing was before it, or at it."""
    return math.isfinite(goal) and curve_Ex2[0, 1] <= goal


def mean_curve(curves: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """The mean over seeds, at the steps at which all were evaluated."""
    each = _curves(curves)
    common = sorted(set.intersection(*(set(curve_Ex2[:, 0]) for curve_Ex2 in each)))
    loss_E = np.mean([c_Ex2[np.isin(c_Ex2[:, 0], common), 1] for c_Ex2 in each], axis=0)
    return np.stack([np.array(common), loss_E], axis=1)


def _curves(curves: Sequence[ArrayLike]) -> list[NDArray[np.float64]]:
    return [np.asarray(curve, np.float64) for curve in curves]


def _interval(
    curves: Sequence[NDArray[np.float64]], goal: float, finals: Sequence[float], goal_steps: float
) -> tuple[float, float] | None:
    seeds, goals = len(curves), len(finals)
    crossings = [[first_crossing(curve_Ex2, g) for g in (goal, *finals)] for curve_Ex2 in curves]
    at_once = any(_begins_at(curve_Ex2, max(finals)) for curve_Ex2 in curves)
    if min(seeds, goals) < 2 or at_once or any(None in row for row in crossings):
        return None
    log_steps = np.log(np.array(crossings, np.float64))
    at_goal_I, mean_at_J = log_steps[:, 0], log_steps[:, 1:].mean(0)
    centre = math.log(goal_steps) - at_goal_I.mean()
    ours, theirs = at_goal_I.var(ddof=1) / seeds, mean_at_J.var(ddof=1) / goals
    if ours + theirs == 0:
        return math.exp(centre), math.exp(centre)
    freedom = (ours + theirs) ** 2 / (ours**2 / (seeds - 1) + theirs**2 / (goals - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(ours + theirs)
    return math.exp(centre - half), math.exp(centre + half)

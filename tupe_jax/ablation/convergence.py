"""How many steps a variant needs to reach the final loss of another one.

    goal      the validation loss of the other variant at its last evaluation, mean over its seeds
    steps     for each seed of the variant: the first step at which its curve reaches the goal; the
              curve is interpolated linearly between evaluations and not smoothed
    speed-up  the first step at which the other variant's own mean curve reaches the goal (usually
              its last), divided by the geometric mean of `steps`; undefined if that curve is at the
              goal at its first evaluation, because the crossing is then unknown

If a seed never reaches the goal, there is no speed-up: a mean over the remaining seeds would be
biased. A curve that is below the goal at its first evaluation counts with that evaluation's step,
and the speed-up is a lower bound. Noise makes a first crossing early; evaluating on the same
sequences each time keeps the noise small. Steps are not seconds: a step of one variant may take
longer than a step of another.

A slower variant ends above the goal, since all variants train for the same number of steps. So a
ratio below 1 is not observed (unless the other variant reached its final loss early), and a ratio
near 1 only if every seed reaches the goal. If some seeds miss it, the two variants cannot be
distinguished, or the first one is worse. A diverged seed never reaches a goal, and its variant sets
no goal.

The 95 % interval is Welch's t-interval of the logarithms and counts the seeds of both variants. The
variant's own seeds vary the crossing; the other variant's seeds vary the goal, and with it the
crossing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats


@dataclass(frozen=True)
class SpeedUp:
    """The steps of a variant to another variant's final loss."""

    goal: float
    """The loss to reach, in nats; not finite if a seed of the other variant diverged."""
    goal_steps: float | None
    """Steps of the other variant; None without a goal or if it starts at the goal."""
    steps: tuple[float | None, ...]
    """By seed; None: never reached."""
    interval: tuple[float, float] | None
    """The interval of the ratio. None if either variant has only one seed, or if a seed misses the
    final loss of a seed of the other variant or reaches it at its first evaluation."""
    is_bound: bool
    """The ratio is a lower bound: a seed was at the goal at its first evaluation."""

    @property
    def has_goal(self) -> bool:
        return math.isfinite(self.goal)

    @property
    def reached(self) -> tuple[float, ...]:
        return tuple(steps for steps in self.steps if steps is not None)

    @property
    def steps_interval(self) -> tuple[float, float] | None:
        """The interval of the geometric mean of steps, from that of the ratio."""
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
    """Compare two variants; a curve per seed, [E, 2]: step and loss of each evaluation."""
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
    """The first step at which a curve reaches the goal, at least 1; None: never."""
    curve_Ex2: NDArray[np.float64] = np.asarray(curve, np.float64)
    there = np.flatnonzero(curve_Ex2[:, 1] <= goal)
    if not math.isfinite(goal) or not len(there):
        return None
    at = int(there[0])
    step, loss = curve_Ex2[at]
    # There is no interpolation from a loss that is not finite.
    if at > 0 and np.isfinite(curve_Ex2[at - 1, 1]):
        step_before, loss_before = curve_Ex2[at - 1]
        step -= (step - step_before) * (goal - loss) / (loss_before - loss)
    return max(1.0, float(step))  # an evaluation at step 0 would make ratios infinite


def _begins_at(curve_Ex2: NDArray[np.float64], goal: float) -> bool:
    """Whether the curve is at the goal at its first evaluation, so that the crossing is unknown."""
    return math.isfinite(goal) and curve_Ex2[0, 1] <= goal


def mean_curve(curves: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """The mean over seeds, at the steps that all seeds were evaluated at."""
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

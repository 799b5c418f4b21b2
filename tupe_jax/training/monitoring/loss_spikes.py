"""Loss spikes: a training loss far above the recent ones, the first sign of a run going wrong."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# A spike is both far outside the noise and large in itself: late in training the noise is so small
# that mere wiggles are many deviations, and early it is so large that a fifth more is nothing.
DEVIATIONS = 8.0
SHARE_ABOVE = 0.2
# Fewer losses than this say nothing about what is usual.
FEWEST = 20


@dataclass(frozen=True)
class Spike:
    """A loss, and what was usual before it."""

    loss: float
    usual: float

    def __str__(self) -> str:
        return f"loss spike: {self.loss:.3f}, while {self.usual:.3f} was usual"


def spike(loss: float, recent: Sequence[float]) -> Spike | None:
    """Judge a loss by the median of the recent ones and their median distance from it.

    Medians, because a few spikes among the recent losses must not make the next one look usual.
    While the loss falls fast, at the start of a run, the recent ones lie far apart and above it:
    nothing is a spike then.
    """
    if len(recent) < FEWEST:
        return None
    usual = float(np.median(recent))
    # For normal noise 1.4826 times the median distance is the standard deviation.
    deviation = 1.4826 * float(np.median(np.abs(np.asarray(recent) - usual)))
    above = loss - usual
    is_spike = above >= DEVIATIONS * deviation and above > SHARE_ABOVE * abs(usual)
    return Spike(loss, usual) if is_spike else None


class SpikeDetector:
    """Watches the losses of a run and tells of each spike once, at its first loss.

    The losses of a spike count as recent, too: if the loss stays high, that is the new usual after
    half a window, and a rise from there is a spike again.
    """

    def __init__(self, window: int = 100) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._within = False

    def observe(self, loss: float) -> Spike | None:
        """Take the next loss. One that is not finite is a matter of its own, and not remembered."""
        if not math.isfinite(loss):
            return None
        found = spike(loss, self._recent)
        begins = found is not None and not self._within
        self._within = found is not None
        self._recent.append(loss)
        return found if begins else None

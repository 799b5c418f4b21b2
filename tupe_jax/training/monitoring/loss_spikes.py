"""Loss spikes: a training loss far above the recent ones, the first sign of a run going wrong."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# A spike must be both: many deviations and a large fraction above the median. Late in training the
# noise is so small that ordinary fluctuations are many deviations. Early it is so large that a
# fifth more is ordinary.
DEVIATIONS = 8.0
SHARE_ABOVE = 0.2
# With fewer recent losses, nothing is a spike.
FEWEST = 20


@dataclass(frozen=True)
class Spike:
    """A loss, and the median of the losses before it."""

    loss: float
    usual: float

    def __str__(self) -> str:
        return f"loss spike: {self.loss:.3f}, while {self.usual:.3f} was usual"


def spike(loss: float, recent: Sequence[float]) -> Spike | None:
    """Compare a loss with the median of the recent ones and their median deviation from it.

    Medians, because a few spikes among the recent losses must not hide the next one. While the
    loss falls fast, at the start of a run, recent losses differ much and are higher: then nothing
    is a spike.
    """
    if len(recent) < FEWEST:
        return None
    usual = float(np.median(recent))
    # For normal noise the standard deviation is 1.4826 times the median deviation.
    deviation = 1.4826 * float(np.median(np.abs(np.asarray(recent) - usual)))
    above = loss - usual
    is_spike = above >= DEVIATIONS * deviation and above > SHARE_ABOVE * abs(usual)
    return Spike(loss, usual) if is_spike else None


class SpikeDetector:
    """Detects spikes in the losses of a run. Reports each spike once, at its first loss.

    The losses of a spike also count as recent: if the loss stays high for half a window, that
    becomes the median, and a further rise is a new spike.
    """

    def __init__(self, window: int = 100) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._within = False

    def observe(self, loss: float) -> Spike | None:
        """Take the next loss. A loss that is not finite is ignored: the step skips its update."""
        if not math.isfinite(loss):
            return None
        found = spike(loss, self._recent)
        begins = found is not None and not self._within
        self._within = found is not None
        self._recent.append(loss)
        return found if begins else None

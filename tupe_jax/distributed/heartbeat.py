"""Heartbeats: what a process reports every few seconds, and who is slow or behind.

`process_group.py` sends them, and ends the run if those of a process are missing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any

# A process is slow if it waits this many times as long for its data as the median process does,
# and at least this share of a step.
SLOW_FACTOR, SLOW_SHARE = 2.0, 0.2


@dataclass(frozen=True)
class Heartbeat:
    """The progress of a process."""

    marks: int = 0
    """Events so far. All processes run the same program, so the one with the fewest is behind."""
    step: int = 0
    activity: str = "starting"
    step_seconds: float = 0.0
    """The median of recent steps. Processes wait for each other in a step, so all have the same."""
    data_seconds: float = 0.0
    """The median time per step that this process waited for its data, while the others waited."""

    def message(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def parse(cls, message: Any) -> "Heartbeat":
        return cls(**{part.name: message[part.name] for part in fields(cls)})

    def __str__(self) -> str:
        return f"at step {self.step}, {self.activity}"


def furthest_behind(beats: Mapping[int, Heartbeat]) -> int | None:
    """The process that is behind all others; None if several are equally far."""
    marks = sorted((beat.marks, index) for index, beat in beats.items())
    if len(marks) < 2 or marks[0][0] == marks[1][0]:
        return None
    return marks[0][1]


def slowest(beats: Mapping[int, Heartbeat]) -> int | None:
    """The process that holds up the others by waiting for its data; None if none stands out."""
    index, beat = max(beats.items(), key=lambda item: item[1].data_seconds)
    usual = median(other.data_seconds for other in beats.values())
    stands_out = beat.data_seconds > max(SLOW_FACTOR * usual, SLOW_SHARE * beat.step_seconds)
    return index if beat.step_seconds > 0 and stands_out else None

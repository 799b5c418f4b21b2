"""US dollars per hour of one chip or GPU. Prices change: check them before you start."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Price:
    """Dollars per chip and hour."""

    on_demand: float
    spot: float | None = None


PRICES: Mapping[str, Price] = {
    "v5e": Price(1.20, 0.48),
    "v5p": Price(4.20, 1.68),
    "v6e": Price(2.70, 1.215),
    "h100": Price(10.979, 2.506),
}
"""As in launch/README.md, which names the regions and the source."""

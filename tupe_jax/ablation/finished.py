"""The runs of a study that a report can draw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tupe_jax.ablation.collect import Collected
from tupe_jax.ablation.config import AblationConfig
from tupe_jax.ablation.record import RunRecord
from tupe_jax.ablation.report.html import Html, element
from tupe_jax.ablation.report.plots import Look, looks_of, swatch

T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """Runs that did not diverge, by variant in the study's order, and how each is drawn."""

    config: AblationConfig
    runs: Mapping[str, Sequence[RunRecord]]
    """By seed; variants without a run are not here."""
    looks: Mapping[str, Look]

    @classmethod
    def of(cls, collected: Collected) -> "Finished":
        names = [variant.name for variant in collected.config.variants]
        runs = {
            name: [record for _, record in sorted(of.items()) if not record.diverged]
            for name, of in ((name, collected.runs[name]) for name in names)
        }
        there = {name: records for name, records in runs.items() if records}
        return cls(collected.config, there, looks_of(names))

    def each(self, value: Callable[[RunRecord], T | None]) -> dict[str, list[T]]:
        """What runs have of something, by variant; variants that have nothing of it left out."""
        found = {
            name: [v for v in map(value, records) if v is not None]
            for name, records in self.runs.items()
        }
        return {name: values for name, values in found.items() if values}

    def legend(self, key: str) -> Html:
        items = (
            element("li", Html(swatch(self.looks[variant], f"{key}{number}")), variant)
            for number, variant in enumerate(self.runs)
        )
        return element("ul", *items, css="legend")

"""Which runs a study has, in which order, and which of them belong to a shard. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tupe_jax.ablation.config import AblationConfig
from tupe_jax.run.shard import ALL_WORK, WorkShard


@dataclass(frozen=True)
class RunKey:
    """All that tells a run from the others of its study."""

    variant: str
    seed: int
    learning_rate: float

    @property
    def folder(self) -> Path:
        return Path("runs") / self.variant / f"seed{self.seed}-lr{self.learning_rate}"

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}, learning rate {self.learning_rate}"


@dataclass(frozen=True)
class Unit:
    """A piece of work: a run with the variant's best learning rate, from beginning to end; or, if
    a learning rate is given, a pre-training that serves to find it.
    """

    variant: str
    seed: int
    learning_rate: float | None = None

    @property
    def is_tuning(self) -> bool:
        return self.learning_rate is not None


def plan(config: AblationConfig, shard: WorkShard = ALL_WORK) -> list[Unit]:
    """The work of a shard: first all tuning, then one seed of every variant after the other.

    The runs of a variant stay together, so that no shard waits for what another one tunes. Where
    there are more shards than variants, several share one.
    """
    count = len(config.variants)
    mine: list[tuple[tuple[int, int], Unit]] = []
    for number, variant in enumerate(config.variants):
        units = _units_of(config, variant.name)
        if shard.count <= count:
            places = range(len(units)) if number % shard.count == shard.index else range(0)
        elif shard.index % count == number:
            sharing = len(range(number, shard.count, count))
            places = range(shard.index // count, len(units), sharing)
        else:
            places = range(0)
        mine += [((place, number), units[place]) for place in places]
    return [unit for _, unit in sorted(mine, key=lambda item: item[0])]


def _units_of(config: AblationConfig, variant: str) -> list[Unit]:
    tuning = [Unit(variant, key.seed, key.learning_rate) for key in tuning_runs(config, variant)]
    return [*tuning, *(Unit(variant, seed) for seed in config.seeds)]


def tuning_runs(config: AblationConfig, variant: str) -> list[RunKey]:
    """The runs among which the learning rate is chosen; none if there is no choice."""
    if len(config.learning_rates) == 1:
        return []
    return [RunKey(variant, config.seeds[0], rate) for rate in config.learning_rates]


def best_rate(final_loss: Mapping[float, float]) -> float:
    """The learning rate with the lowest loss; of equal ones the smaller."""
    return min(final_loss, key=lambda rate: (final_loss[rate], rate))

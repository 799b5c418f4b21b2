"""The runs of a study, their order, and their assignment to shards. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass

from tupe_jax.ablation.config import AblationConfig, Variant
from tupe_jax.run.shard import ALL_WORK, WorkShard
from tupe_jax.utils.paths import Path


@dataclass(frozen=True)
class RunKey:
    """Identifies a run within its study."""

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
    """A unit of work: a complete run with the variant's best learning rate; or, if a learning rate
    is given, a tuning run, which is only pre-trained.
    """

    variant: str
    seed: int
    learning_rate: float | None = None

    @property
    def is_tuning(self) -> bool:
        return self.learning_rate is not None


def plan(config: AblationConfig, shard: WorkShard = ALL_WORK) -> list[Unit]:
    """The units of a shard: first all tuning runs, then the first seed of every variant, and so on.

    All runs of a variant, and of those that use its learning rate, go to one shard, so that no
    shard waits for the tuning of another. If there are more shards than variants, several shards
    divide the runs of a variant.
    """
    count = len(config.variants)
    numbers = {variant.name: number for number, variant in enumerate(config.variants)}
    mine: list[tuple[tuple[int, int], Unit]] = []
    for variant in config.variants:
        number, units = numbers[variant.name], _units_of(config, variant)
        if shard.count <= count:
            tuned = numbers[variant.tuned_as or variant.name]
            indices = range(len(units)) if tuned % shard.count == shard.index else range(0)
        elif shard.index % count == number:
            sharing = len(range(number, shard.count, count))
            indices = range(shard.index // count, len(units), sharing)
        else:
            indices = range(0)
        # The first seed of a variant that is not tuned itself waits for the tuning runs of others.
        tuned_before = len(tuning_runs(config, variant.name)) if variant.tuned_as else 0
        mine += [((tuned_before + index, number), units[index]) for index in indices]
    return [unit for _, unit in sorted(mine, key=lambda item: item[0])]


def _units_of(config: AblationConfig, variant: Variant) -> list[Unit]:
    name = variant.name
    keys = [] if variant.tuned_as else tuning_runs(config, name)
    tuning = [Unit(name, key.seed, key.learning_rate) for key in keys]
    return [*tuning, *(Unit(name, seed) for seed in config.seeds)]


def tuning_runs(config: AblationConfig, variant: str) -> list[RunKey]:
    """The runs that the learning rate is chosen from; empty if the study has only one rate."""
    if len(config.learning_rates) == 1:
        return []
    tuned = config.variant(variant).tuned_as or variant
    return [RunKey(tuned, config.seed_of_tuning, rate) for rate in config.learning_rates]


def best_rate(final_loss: Mapping[float, float]) -> float:
    """The learning rate with the lowest loss; the smaller one on a tie."""
    return min(final_loss, key=lambda rate: (final_loss[rate], rate))

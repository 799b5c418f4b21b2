"""How `tupe prepare` divides a corpus into training shards: its settings, and a job per shard.

The division depends on the settings and the corpus alone, so every machine finds the same jobs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tupe_jax.config.schema import OnError, Packing
from tupe_jax.data.pretraining.deduplication import Deduplication
from tupe_jax.data.pretraining.seqio_tasks import Component, parse_task
from tupe_jax.data.pretraining.sources import DocumentSource
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path


@dataclass(frozen=True)
class PrepareConfig:
    """The settings of `tupe prepare`. With the corpus, they determine every byte of the result."""

    task: str
    tokenizer: Path
    length: int
    cleaning: tuple[str, ...] = ()
    shards: int | None = None
    seed: int = 0
    packing: Packing = "stream"
    deduplicate: Deduplication = "none"
    """`exact` drops copies of documents in the whole corpus."""
    on_error: OnError = "stop"

    @property
    def description(self) -> str:
        """The value of `task` in the index."""
        return f"{self.task} [{', '.join(self.cleaning)}]" if self.cleaning else self.task


@dataclass(frozen=True)
class ShardJob:
    """The work to make training shard `number`: shard `index` of `count` of a pass over a source.

    `identity` is that of the corpus when it was divided. A pass may keep a share of the documents.
    Only pass 0 over a source yields validation sequences.
    """

    number: int
    source: str
    identity: str
    share: float
    index: int
    count: int
    pass_number: int

    @property
    def starts_source(self) -> bool:
        return self.pass_number == self.index == 0


def divide(config: PrepareConfig) -> tuple[list[ShardJob], str]:
    """Return the jobs for all training shards, and a text that changes when the corpus does."""
    components = parse_task(config.task, config.seed, config.on_error)
    passes = [
        (component.source, share, number)
        for component in components
        for number, share in enumerate(_passes(component))
    ]
    counts = _shards_per_pass([source for source, _, _ in passes], config.shards)
    jobs: list[ShardJob] = []
    for (source, share, pass_number), count in zip(passes, counts, strict=True):
        if count > source.most_shards:
            raise UserError(
                f"{source.spec}: {count} shards requested, but this corpus can be divided into at "
                f"most {source.most_shards}; set a smaller --shards"
            )
        jobs += [
            ShardJob(
                len(jobs) + index, source.spec, source.identity, share, index, count, pass_number
            )
            for index in range(count)
        ]
    return jobs, " ".join(component.source.identity for component in components)


def _passes(component: Component) -> list[float]:
    """Return the share of the documents kept by each pass: a weight of 2.5 is 1, 1 and 0.5."""
    whole = math.floor(component.weight)
    rest = component.weight - whole
    return [1.0] * whole + ([rest] if rest else [])


def _shards_per_pass(sources: Sequence[DocumentSource], shards: int | None) -> list[int]:
    """Divide the number of shards by size, with at least one shard per pass."""
    if shards is None:
        return [source.default_shards for source in sources]
    spare = shards - len(sources)
    if spare < 0:
        raise UserError(
            f"--shards={shards}: the task makes {len(sources)} passes over its sources, and each "
            f"needs at least one shard; set --shards={len(sources)} or more"
        )
    total = max(sum(source.text_bytes for source in sources), 1)
    counts, before = [], 0
    for source in sources:
        after = before + source.text_bytes
        counts.append(1 + spare * after // total - spare * before // total)
        before = after
    return counts

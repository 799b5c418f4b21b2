"""What to prepare, and how the corpus is divided into parts that can be made independently."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tupe_jax.config.schema import Packing
from tupe_jax.data.pretraining.seqio_tasks import Component, parse_task
from tupe_jax.data.pretraining.sources import DocumentSource
from tupe_jax.utils.errors import UserError


@dataclass(frozen=True)
class Settings:
    """The settings of one preparation; with the corpus, they decide every byte of the result."""

    task: str
    vocabulary: Path
    length: int
    cleaning: tuple[str, ...] = ()
    shards: int | None = None
    seed: int = 0
    # Where SeqIO's Beam pipeline has put the tokenised documents of the task, if it was used.
    # A folder or an address like gs://bucket/folder.
    cache: str | None = None
    packing: Packing = "stream"

    @property
    def description(self) -> str:
        """What the index calls the task."""
        return f"{self.task} [{', '.join(self.cleaning)}]" if self.cleaning else self.task


@dataclass(frozen=True)
class Part:
    """Shard `index` of `count` of one pass over a source; it becomes training shard `number`.

    `identity` is the corpus's when the work was divided. A pass may keep a share of the documents.
    Only a source's first pass gives validation rows.
    """

    number: int
    source: str
    identity: str
    share: float
    index: int
    count: int
    first_pass: bool


def divide(settings: Settings) -> tuple[list[Part], str]:
    """Return the parts of the corpus, and a text that changes when the corpus does."""
    components = parse_task(settings.task, settings.seed)
    passes = [
        (component.source, share, number == 0)
        for component in components
        for number, share in enumerate(_passes(component))
    ]
    counts = _shards_per_pass([source for source, _, _ in passes], settings.shards)
    parts: list[Part] = []
    for (source, share, first_pass), count in zip(passes, counts, strict=True):
        if count > source.most_shards:
            raise UserError(
                f"{source.spec}: {count} shards, but this corpus can be divided into at most "
                f"{source.most_shards}; set a smaller --shards"
            )
        parts += [
            Part(len(parts) + index, source.spec, source.identity, share, index, count, first_pass)
            for index in range(count)
        ]
    return parts, " ".join(component.source.identity for component in components)


def _passes(component: Component) -> list[float]:
    """Return the share of the documents kept by each pass: a weight of 2.5 is 1, 1 and 0.5."""
    whole = math.floor(component.weight)
    rest = component.weight - whole
    return [1.0] * whole + ([rest] if rest else [])


def _shards_per_pass(sources: Sequence[DocumentSource], shards: int | None) -> list[int]:
    """Divide the wanted number of shards by size, at least one for each pass."""
    if shards is None:
        return [source.default_shards for source in sources]
    spare = shards - len(sources)
    if spare < 0:
        raise UserError(
            f"--shards={shards}, but the task makes {len(sources)} passes over its sources and "
            f"each needs a shard of its own; set --shards={len(sources)} or more"
        )
    total = sum(source.text_bytes for source in sources)
    counts, before = [], 0
    for source in sources:
        after = before + source.text_bytes
        counts.append(1 + spare * after // total - spare * before // total)
        before = after
    return counts

"""Lines to train a vocabulary on: all of a small corpus, a sample of a large one."""

import random
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from tupe_jax.data.graph import elements
from tupe_jax.data.sources import TRAIN
from tupe_jax.data.tasks import Component, cleaning_step
from tupe_jax.data.tensorflow_on_cpu import seqio

_LINES_TO_MEASURE = 1_000


def sample_lines(
    components: Sequence[Component], cleaning: Sequence[str], limit: int, seed: int
) -> Iterator[str]:
    """Yield at most `limit` lines of the training documents, the same ones for the same seed.

    Every source gives text by its weight and size, however long its lines are. Its shards are read
    in an order drawn by the seed until there is enough, so that a sample of a large corpus reads a
    part of it only.
    """
    sources = [_lines(component, cleaning, seed) for component in components]
    begins = [list(islice(lines, _LINES_TO_MEASURE)) for lines in sources]
    counts = [
        component.weight * component.source.text_bytes / _mean_bytes(begin)
        for component, begin in zip(components, begins, strict=True)
    ]
    part = min(1.0, limit / sum(counts))
    for begin, lines, count in zip(begins, sources, counts, strict=True):
        share = limit if part == 1 or len(components) == 1 else max(1, round(part * count))
        yield from islice(chain(begin, lines), share)


def _mean_bytes(lines: Sequence[str]) -> float:
    """Of a line with its end; 1 if there is none."""
    return sum(len(line.encode()) + 1 for line in lines) / len(lines) if lines else 1.0


def _lines(component: Component, cleaning: Sequence[str], seed: int) -> Iterator[str]:
    source = component.source
    count = source.default_shards
    for index in random.Random(seed).sample(range(count), count):
        documents = source.get_dataset(TRAIN, shard_info=seqio.ShardInfo(index, count))
        for step in cleaning:
            documents = cleaning_step(step)(documents)
        for document in elements(documents):
            yield from document.decode().split("\n")

"""Lines to train a vocabulary on: all of a small corpus, a sample of a large one."""

import random
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from tupe_jax.data.pretraining.graph import elements
from tupe_jax.data.pretraining.seqio_tasks import Component, cleaning_step
from tupe_jax.data.pretraining.sources import TRAIN
from tupe_jax.data.tensorflow_on_cpu import seqio

_LINES_TO_MEASURE = 1_000


def sample_lines(
    components: Sequence[Component], cleaning: Sequence[str], limit: int, seed: int
) -> Iterator[str]:
    """Yield at most `limit` lines of the training documents, the same ones for the same seed.

    Every source gives text by its weight and size, however long its lines are. A corpus within the
    limit is read whole: the sources of the highest weight give all their lines, the others a part
    of theirs. Of a larger one, the shards of a source are read in an order drawn by the seed until
    there is enough.
    """
    sources = [_lines(component, cleaning, seed) for component in components]
    begins = [list(islice(lines, _LINES_TO_MEASURE)) for lines in sources]
    counts = [
        component.weight * component.source.text_bytes / _mean_bytes(begin)
        for component, begin in zip(components, begins, strict=True)
    ]
    # No line is repeated: the sources of the highest weight are passed once at most.
    highest = max(component.weight for component in components)
    is_read_whole = sum(counts) / highest <= limit
    for component, begin, lines, count in zip(components, begins, sources, counts, strict=True):
        every = chain(begin, lines)
        if is_read_whole:
            yield from islice(_thinned(every, component.weight / highest), limit)
        else:
            yield from islice(every, max(1, round(limit / sum(counts) * count)))


def _thinned(lines: Iterator[str], part: float) -> Iterator[str]:
    """Yield this part of the lines, evenly spread."""
    taken = 0
    for number, line in enumerate(lines, start=1):
        if number * part >= taken + 1:
            taken += 1
            yield line


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

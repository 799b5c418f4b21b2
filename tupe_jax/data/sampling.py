"""Lines to train a vocabulary on: all of a small corpus, a sample of a large one."""

import random
from collections.abc import Iterator, Sequence
from itertools import islice

from tupe_jax.data.graph import elements
from tupe_jax.data.sources import TRAIN
from tupe_jax.data.tasks import Component, cleaning_step
from tupe_jax.data.tensorflow_on_cpu import seqio


def sample_lines(
    components: Sequence[Component], cleaning: Sequence[str], limit: int, seed: int
) -> Iterator[str]:
    """Yield at most `limit` lines of the training documents, the same ones for the same seed.

    Every source gives lines by its weight and size. A source's shards are read in an order drawn
    by the seed until there are enough, so that a sample of a large corpus reads a part of it only.
    """
    sizes = [component.weight * component.source.text_bytes for component in components]
    for component, size in zip(components, sizes, strict=True):
        share = max(1, round(limit * size / sum(sizes)))
        yield from islice(_lines(component, cleaning, seed), share)


def _lines(component: Component, cleaning: Sequence[str], seed: int) -> Iterator[str]:
    source = component.source
    count = source.default_shards
    for index in random.Random(seed).sample(range(count), count):
        documents = source.get_dataset(TRAIN, shard_info=seqio.ShardInfo(index, count))
        for step in cleaning:
            documents = cleaning_step(step)(documents)
        for document in elements(documents):
            yield from document.decode().split("\n")

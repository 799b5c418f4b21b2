"""Train a tokenizer on a data task: on all lines of a small corpus, on a sample of a large one."""

import random
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.seqio_tasks import Component, cleaning_step, parse_task
from tupe_jax.data.pretraining.sources import TRAIN
from tupe_jax.data.tf_utils import elements, seqio
from tupe_jax.tokenizers.sentencepiece import (
    DEFAULT_LINES,
    SentencePieceTokenizer,
    train_sentencepiece,
)
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path

_LINES_TO_MEASURE = 1_000


def train_tokenizer(
    task: str,
    out: Path,
    *,
    size: int,
    cleaning: Sequence[str],
    seed: int,
    lines: int = DEFAULT_LINES,
    on_error: OnError = "stop",
) -> SentencePieceTokenizer:
    """Train on at most `lines` lines of the task's training documents, and write the model."""
    sample = sample_lines(parse_task(task, seed, on_error), cleaning, lines, seed)
    model = train_sentencepiece(sample, size)
    with atomic_file(out) as unfinished:
        unfinished.write_bytes(model)
    return SentencePieceTokenizer.load(out)


def sample_lines(
    components: Sequence[Component], cleaning: Sequence[str], limit: int, seed: int
) -> Iterator[str]:
    """Yield at most `limit` lines of the training documents, the same lines for the same seed.

    Every source contributes text by its weight and size, whatever the length of its lines. A corpus
    within the limit is read completely: the sources of the highest weight contribute all lines, the
    others a fraction. In a larger corpus, the shards of each source are read in a random order
    until there are enough lines.
    """
    sources = [_lines(component, cleaning, seed) for component in components]
    heads = [list(islice(lines, _LINES_TO_MEASURE)) for lines in sources]
    if not any(heads):
        _raise_if_broken(components)
    counts = [
        component.weight * component.source.text_bytes / _mean_bytes(head)
        for component, head in zip(components, heads, strict=True)
    ]
    # No line is repeated: the sources of the highest weight are read at most once.
    highest = max(component.weight for component in components)
    is_read_completely = sum(counts) / highest <= limit
    for component, head, lines, count in zip(components, heads, sources, counts, strict=True):
        all_lines = chain(head, lines)
        if is_read_completely:
            yield from islice(_thinned(all_lines, component.weight / highest), limit)
        else:
            yield from islice(all_lines, max(1, round(limit / sum(counts) * count)))


def _raise_if_broken(components: Sequence[Component]) -> None:
    """Raise if a corpus without text has broken records, as it has with a wrong field."""
    for component in components:
        broken = component.source.count_broken(0, 1)
        if broken.count:
            raise UserError(
                f"{component.source.spec}: no text, and {broken.count:,} broken records or files "
                f"were skipped; correct them, or the task; first {broken.first}"
            )


def _thinned(lines: Iterator[str], fraction: float) -> Iterator[str]:
    """Yield this fraction of the lines, evenly spread."""
    taken = 0
    for number, line in enumerate(lines, start=1):
        if number * fraction >= taken + 1:
            taken += 1
            yield line


def _mean_bytes(lines: Sequence[str]) -> float:
    """Return the mean size of a line with its line feed, or 1 if there are no lines."""
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

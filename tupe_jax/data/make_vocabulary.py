"""From a data task to a vocabulary file."""

from collections.abc import Sequence
from pathlib import Path

from tupe_jax.data.atomic import complete_file
from tupe_jax.data.sampling import sample_lines
from tupe_jax.data.tasks import parse_task
from tupe_jax.data.vocabulary import DEFAULT_LINES, Vocabulary, train_vocabulary


def make_vocabulary(
    task: str,
    out: Path,
    *,
    size: int,
    cleaning: Sequence[str],
    seed: int,
    lines: int = DEFAULT_LINES,
) -> Vocabulary:
    """Train on at most `lines` lines of the task's training documents; write the file whole."""
    sample = sample_lines(parse_task(task, seed), cleaning, lines, seed)
    model = train_vocabulary(sample, size)
    with complete_file(out) as unfinished:
        unfinished.write_bytes(model)
    return Vocabulary.load(out)

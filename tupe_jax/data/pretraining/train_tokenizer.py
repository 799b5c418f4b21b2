"""From a data task to a vocabulary file."""

from collections.abc import Sequence
from pathlib import Path

from tupe_jax.data.pretraining.sampling import sample_lines
from tupe_jax.data.pretraining.seqio_tasks import parse_task
from tupe_jax.tokenizers.sentencepiece import (
    DEFAULT_LINES,
    SentencePieceTokenizer,
    train_sentencepiece,
)
from tupe_jax.utils.files import atomic_file


def train_tokenizer(
    task: str,
    out: Path,
    *,
    size: int,
    cleaning: Sequence[str],
    seed: int,
    lines: int = DEFAULT_LINES,
) -> SentencePieceTokenizer:
    """Train on at most `lines` lines of the task's training documents; write the file whole."""
    sample = sample_lines(parse_task(task, seed), cleaning, lines, seed)
    model = train_sentencepiece(sample, size)
    with atomic_file(out) as unfinished:
        unfinished.write_bytes(model)
    return SentencePieceTokenizer.load(out)

"""The data of a run: vocabulary, training batches, validation rows; made where they are missing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import Config
from tupe_jax.data.pretraining.cleaning import parse_cleaning
from tupe_jax.data.pretraining.readers import HostShard, Reader
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.training.given_data import (
    check_checkpoint_vocabulary,
    check_given_data,
    check_index,
    given_vocabulary,
    no_tokenizer,
    require_fitting_vocabulary,
)
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file

DATA_FOLDER, VOCABULARY_FILE, ROWS_FOLDER = "data", "vocabulary.model", "rows"


@dataclass(frozen=True)
class Corpus:
    """What a run reads."""

    vocabulary: SentencePieceTokenizer
    train: Reader
    validation_NxS: NDArray[np.int32]
    sample_NxS: NDArray[np.int32]
    """Training rows from which the unigram baseline is counted."""
    rows_per_epoch: int | None
    """None where only a pass over the data would tell."""


SAMPLE_ROWS = 4096


def make_corpus(
    config: Config,
    workdir: Path,
    saved_vocabulary: bytes | None,
    say: Callable[[str], None],
) -> Path:
    """Make what is not there, vocabulary and rows, and return where the vocabulary is.

    `saved_vocabulary` is that of a checkpoint to resume from, used if the file is missing.
    """
    check_given_data(config, resumes=has_tokenizer(workdir) or saved_vocabulary is not None)
    if saved_vocabulary is not None:
        check_checkpoint_vocabulary(config, saved_vocabulary)
    path = _vocabulary(config, workdir, saved_vocabulary, say)
    require_fitting_vocabulary(config, SentencePieceTokenizer.load(path))
    if config.data.reader == "prepared" and not config.data.prepared:
        _prepare(config, path, workdir / DATA_FOLDER / ROWS_FOLDER, say)
    return path


def has_tokenizer(workdir: Path) -> bool:
    """Whether a run has begun here with a vocabulary of its own."""
    return (workdir / DATA_FOLDER / VOCABULARY_FILE).exists()


def open_corpus(config: Config, workdir: Path, vocabulary_path: Path, share: HostShard) -> Corpus:
    """Open the data of a config; of each training batch, the share of this process."""
    vocabulary = SentencePieceTokenizer.load(vocabulary_path)
    if config.data.reader == "live":
        return _live(config, vocabulary, share)
    return _prepared(config, vocabulary, workdir, share)


def _vocabulary(
    config: Config, workdir: Path, saved: bytes | None, say: Callable[[str], None]
) -> Path:
    given = given_vocabulary(config)
    own = workdir / DATA_FOLDER / VOCABULARY_FILE
    if (given or own).exists():
        return given or own
    if saved is not None:
        own.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(own) as unfinished:
            unfinished.write_bytes(saved)
        return own
    if given:
        return given  # reading it reports that it is not there
    if config.data.prepared:
        raise no_tokenizer(config)
    from tupe_jax.data.pretraining.train_tokenizer import train_tokenizer

    say(f"training a vocabulary of {config.model.vocab_size:,} pieces on {config.data.task}")
    own.parent.mkdir(parents=True, exist_ok=True)
    train_tokenizer(
        config.data.task,
        own,
        size=config.model.vocab_size,
        cleaning=parse_cleaning(config.data.cleaning),
        seed=config.seed,
    )
    return own


def _prepared(
    config: Config, vocabulary: SentencePieceTokenizer, workdir: Path, share: HostShard
) -> Corpus:
    from tupe_jax.data.pretraining.readers import PreparedReader, TokenShards
    from tupe_jax.data.pretraining.token_shards import read_index

    folder = Path(config.data.prepared or workdir / DATA_FOLDER / ROWS_FOLDER)
    index = read_index(folder)
    check_index(config, folder, index)

    def some_rows(split: str, count: int) -> NDArray[np.int32]:
        rows = TokenShards(folder, index.splits[split].shards, index.length, index.dtype)
        return rows.read(rows.spread(count).tolist())

    validation_NxS = some_rows("validation", config.eval.rows)
    return Corpus(
        vocabulary=vocabulary,
        train=PreparedReader(
            folder,
            vocabulary_sha256=vocabulary.sha256,
            split="train",
            batch_size=config.train.batch_size,
            seed=config.seed,
            host_shard=share,
        ),
        validation_NxS=_require_rows(validation_NxS, config),
        sample_NxS=some_rows("train", SAMPLE_ROWS),
        rows_per_epoch=index.splits["train"].rows,
    )


def _prepare(config: Config, vocabulary: Path, folder: Path, say: Callable[[str], None]) -> None:
    import os

    from tupe_jax.data.pretraining.prepare import PrepareConfig, prepare
    from tupe_jax.data.pretraining.token_shards import INDEX_FILE

    if (folder / INDEX_FILE).exists():
        return
    say(f"preparing rows of {config.data.length} tokens of {config.data.task}")
    settings = PrepareConfig(
        task=config.data.task,
        tokenizer=vocabulary,
        length=config.data.length,
        cleaning=parse_cleaning(config.data.cleaning),
        seed=config.seed,
        packing=config.data.packing,
    )
    outcome = prepare(settings, folder, worker_count=os.cpu_count() or 1)
    train = outcome.index.splits["train"]
    say(f"prepared {train.rows:,} rows, {train.tokens:,} tokens of {train.documents:,} documents")


def _live(config: Config, vocabulary: SentencePieceTokenizer, share: HostShard) -> Corpus:
    from itertools import islice

    from tupe_jax.data.pretraining.seqio_tasks import make_task_or_mixture, parse_task
    from tupe_jax.data.pretraining.streaming_reader import (
        StreamingReader,
        epochs_of_task,
        take_by_size,
    )
    from tupe_jax.data.tf_utils import elements

    components = parse_task(config.data.task, config.seed)
    cleaning = parse_cleaning(config.data.cleaning)
    task, *sources = (
        make_task_or_mixture(some, vocabulary, cleaning, config.data.packing)
        for some in (components, *([component] for component in components))
    )

    def some_rows(task: Any, split: str) -> Iterator[NDArray[np.int32]]:
        # Shuffled, but not by the run's seed: runs of different seeds are compared.
        rows = elements(epochs_of_task(task, split, config.data.length)(0))
        return (row["tokens"] for row in rows)

    # One pass of each source: a mixture repeats its sources without end.
    validation = take_by_size(
        [some_rows(source, "validation") for source in sources],
        [component.source.text_bytes for component in components],
        config.eval.rows,
    )
    sample = list(islice(some_rows(task, "train"), SAMPLE_ROWS))

    return Corpus(
        vocabulary=vocabulary,
        train=StreamingReader(
            epochs_of_task(task, "train", config.data.length),
            task=task.name,  # tells of a changed corpus, too
            vocabulary_sha256=vocabulary.sha256,
            length=config.data.length,
            batch_size=config.train.batch_size,
            seed=config.seed,
            host_shard=share,
        ),
        validation_NxS=_require_rows(_as_array(validation, config), config),
        sample_NxS=_as_array(sample, config),
        rows_per_epoch=None,
    )


def _as_array(rows: Sequence[NDArray[np.int32]], config: Config) -> NDArray[np.int32]:
    return np.array(rows, np.int32).reshape(-1, config.data.length)


def _require_rows(validation_NxS: NDArray[np.int32], config: Config) -> NDArray[np.int32]:
    if not len(validation_NxS):
        raise UserError(
            f"{config.data.task}: none of its documents was held out for validation (1 in 200 is); "
            "give it more documents"
        )
    return validation_NxS

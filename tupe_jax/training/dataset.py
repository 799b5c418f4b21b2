"""The data of a run: tokenizer, training batches and validation examples; made if missing."""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from tupe_jax.config.schema import Config
from tupe_jax.data.pretraining.cleaning import parse_cleaning
from tupe_jax.data.pretraining.readers import HostShard, Reader
from tupe_jax.data.pretraining.token_shards import (
    PreparedIndex,
    check_tokenizer_file,
    parse_index,
    read_index,
    require_tokenizer,
)
from tupe_jax.objectives.base import Objective
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path, storage_path

logger = logging.getLogger(__name__)

HostFeatures = Mapping[str, NDArray[Any]]
"""Examples in host memory: `[N, ...]` of each feature."""

DATA_FOLDER, VOCABULARY_FILE, PREPARED_FOLDER = "data", "vocabulary.model", "rows"


@dataclass(frozen=True)
class Dataset:
    """The inputs of a run."""

    tokenizer: SentencePieceTokenizer
    train: Reader
    validation: HostFeatures
    """A fixed sample of the validation split."""
    sample_NxS: NDArray[np.int32]
    """Training sequences in which tokens are counted for a baseline."""
    sequences_per_epoch: int | None
    """None if only a pass over the data would show it."""


SAMPLE_SEQUENCES = 4096


def make_dataset(
    config: Config,
    workdir: Path,
    saved_vocabulary: bytes | None,
) -> Path:
    """Make the tokenizer and the token sequences if they are missing; return the tokenizer's path.

    `saved_vocabulary` is the tokenizer in the checkpoint to resume from. It replaces a lost file.
    """
    check_given_data(config, resumes=has_tokenizer(workdir) or saved_vocabulary is not None)
    if saved_vocabulary is not None:
        _check_checkpoint_vocabulary(config, saved_vocabulary)
    path = _vocabulary(config, workdir, saved_vocabulary)
    _require_fitting_vocabulary(config, SentencePieceTokenizer.load(path))
    if config.data.reader == "prepared":
        if not config.data.prepared:
            _prepare(config, path, _prepared_folder(config, workdir))
        read_index(_prepared_folder(config, workdir))
    return path


def has_tokenizer(workdir: Path) -> bool:
    """Whether a run in this work directory has trained its own tokenizer."""
    return (workdir / DATA_FOLDER / VOCABULARY_FILE).exists()


def open_dataset(config: Config, workdir: Path, tokenizer_path: Path, shard: HostShard) -> Dataset:
    """Open the data of a config; the reader returns the host shard of each training batch."""
    tokenizer = SentencePieceTokenizer.load(tokenizer_path)
    if config.data.reader == "live":
        return _live(config, tokenizer, shard)
    return _prepared(config, tokenizer, workdir, shard)


def _vocabulary(config: Config, workdir: Path, saved: bytes | None) -> Path:
    given = _given_vocabulary(config)
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
        raise _no_tokenizer(config)
    from tupe_jax.data.pretraining.train_tokenizer import train_tokenizer

    logger.info(f"training a tokenizer of {config.model.vocab_size:,} tokens on {config.data.task}")
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
    config: Config, tokenizer: SentencePieceTokenizer, workdir: Path, shard: HostShard
) -> Dataset:
    from tupe_jax.data.pretraining.readers import PreparedReader, TokenShards

    folder = _prepared_folder(config, workdir)
    index = read_index(folder, sizes=False)  # one process has compared sizes in `make_dataset`
    _check_index(config, folder, index)

    def some_sequences(split: str, count: int) -> HostFeatures:
        shards = TokenShards(folder, index.splits[split].shards, index.record)
        return shards.read(shards.spread(count).tolist())

    validation = some_sequences("validation", config.eval.rows)
    _require_sequences(len(validation["tokens"]), config)
    return Dataset(
        tokenizer=tokenizer,
        train=PreparedReader(
            folder,
            index,
            vocabulary_sha256=tokenizer.sha256,
            split="train",
            batch_size=config.train.batch_size,
            seed=config.seed,
            host_shard=shard,
        ),
        validation=validation,
        sample_NxS=some_sequences("train", SAMPLE_SEQUENCES)["tokens"],
        sequences_per_epoch=index.splits["train"].rows,
    )


def _prepared_folder(config: Config, workdir: Path) -> Path:
    return storage_path(config.data.prepared or workdir / DATA_FOLDER / PREPARED_FOLDER)


def _prepare(config: Config, vocabulary: Path, folder: Path) -> None:
    import os

    from tupe_jax.data.pretraining.division import PrepareConfig
    from tupe_jax.data.pretraining.prepare import prepare
    from tupe_jax.data.pretraining.token_shards import INDEX_FILE

    if (folder / INDEX_FILE).exists():
        return
    logger.info(f"preparing sequences of {config.data.length} tokens from {config.data.task}")
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
    logger.info(
        f"prepared {train.rows:,} sequences, {train.tokens:,} tokens, {train.documents:,} documents"
    )


def _live(config: Config, tokenizer: SentencePieceTokenizer, shard: HostShard) -> Dataset:
    from itertools import islice

    from tupe_jax.data.pretraining.seqio_tasks import make_task_or_mixture, parse_task
    from tupe_jax.data.pretraining.streaming_reader import (
        StreamingReader,
        epochs_of_task,
        take_by_size,
    )
    from tupe_jax.data.pretraining.token_shards import stack_examples
    from tupe_jax.data.tf_utils import elements

    components = parse_task(config.data.task, config.seed)
    cleaning = parse_cleaning(config.data.cleaning)
    task, *sources = (
        make_task_or_mixture(some, tokenizer, cleaning, config.data.packing, config.seed)
        for some in (components, *([component] for component in components))
    )

    def some_sequences(task: Any, split: str) -> Iterator[HostFeatures]:
        # Shuffled, but not by the run's seed: runs of different seeds are compared.
        return elements(epochs_of_task(task, split, config.data.length)(0))

    # One pass of each source: a mixture repeats its sources without end.
    validation = take_by_size(
        [some_sequences(source, "validation") for source in sources],
        [component.source.text_bytes for component in components],
        config.eval.rows,
    )
    _require_sequences(len(validation), config)
    sample = [
        sequence["tokens"] for sequence in islice(some_sequences(task, "train"), SAMPLE_SEQUENCES)
    ]

    return Dataset(
        tokenizer=tokenizer,
        train=StreamingReader(
            epochs_of_task(task, "train", config.data.length),
            task=task.name,  # also changes with the corpus
            vocabulary_sha256=tokenizer.sha256,
            length=config.data.length,
            batch_size=config.train.batch_size,
            seed=config.seed,
            host_shard=shard,
        ),
        validation=stack_examples(validation),
        sample_NxS=np.array(sample, np.int32).reshape(-1, config.data.length),
        sequences_per_epoch=None,
    )


def _require_sequences(count: int, config: Config) -> None:
    if not count:
        too_few = (
            "fewer than two documents were" if config.data.packing == "pairs" else "no document was"
        )
        raise UserError(
            f"data.task={config.data.task}: {too_few} held out for validation (1 in 200 is); "
            "use more documents"
        )


# ----------------------------------------------------------------------- data that the config names


def check_given_data(config: Config, *, resumes: bool) -> None:
    """Raise unless `data.prepared` and `data.vocabulary` match each other and the other settings.

    A run that `resumes` may lack the tokenizer file: its work directory has another copy.
    """
    given = config.data.vocabulary
    if config.data.prepared:
        folder = storage_path(config.data.prepared)
        index = parse_index(folder)
        _check_index(config, folder, index)
        if not given:
            check_tokenizer_file(folder, index)
        if not (given or index.tokenizer or resumes):
            raise _no_tokenizer(config)
    if given and (storage_path(given).exists() or not resumes):
        _require_fitting_vocabulary(config, SentencePieceTokenizer.load(given))


def _no_tokenizer(config: Config) -> UserError:
    return UserError(
        f"{config.data.prepared} was prepared by an older version and holds no tokenizer; set "
        "data.vocabulary to the file that `tupe prepare` was given"
    )


def _require_fitting_vocabulary(config: Config, tokenizer: SentencePieceTokenizer) -> None:
    """Raise unless a tokenizer has the model's vocabulary size and is that of `data.prepared`."""
    _check_size(config, tokenizer.path, tokenizer.size)
    if config.data.prepared:
        folder = storage_path(config.data.prepared)
        require_tokenizer(folder, parse_index(folder), tokenizer.sha256)


def _check_checkpoint_vocabulary(config: Config, saved_vocabulary: bytes) -> None:
    """Raise unless the checkpoint to resume from has the tokenizer of `data.prepared`."""
    if not config.data.prepared:
        return
    here = parse_index(storage_path(config.data.prepared)).vocabulary_sha256
    saved = hashlib.sha256(saved_vocabulary).hexdigest()
    if here != saved:
        raise UserError(
            f"data.prepared={config.data.prepared} was made with tokenizer {here[:12]}, but the "
            f"checkpoint has {saved[:12]}; resume with the data that the run started with"
        )


def _given_vocabulary(config: Config) -> Path | None:
    """Return the tokenizer file of `data.vocabulary`, or that of the folder `data.prepared`."""
    if config.data.vocabulary:
        return storage_path(config.data.vocabulary)
    if not config.data.prepared:
        return None
    folder = storage_path(config.data.prepared)
    tokenizer = parse_index(folder).tokenizer
    return folder / tokenizer if tokenizer else None


def _check_index(config: Config, folder: Path, index: PreparedIndex) -> None:
    """Raise unless prepared data has the length, packing and vocabulary size of the config."""
    data = config.data
    if index.length != data.length:
        raise UserError(
            f"{folder} has sequences of {index.length} tokens, but data.length={data.length}; "
            f"set data.length={index.length}, or prepare the data again"
        )
    if index.packing != data.packing:
        raise UserError(
            f"{folder} was prepared with --packing={index.packing}, but data.packing="
            f"{data.packing}; set data.packing={index.packing}, or prepare the data again"
        )
    _check_size(config, folder, index.vocab_size)


def _check_size(config: Config, where: Path, size: int) -> None:
    if size != config.model.vocab_size:
        raise UserError(
            f"{where}: the tokenizer has {size} tokens, but model.vocab_size="
            f"{config.model.vocab_size}; set model.vocab_size={size}"
        )


# ----------------------------------------------------------------------------------- global batches
# A process reads the sequences that its devices hold. They need not be contiguous: the hosts of a
# TPU slice are small tiles of its grid, while the mesh follows its rows and rings. Where the
# `tensor` axis spans processes, several processes hold and read the same sequences.


def host_shard(sharding: NamedSharding, batch_size: int, process: int) -> HostShard:
    """The part of every batch that a process reads: the sequences that its devices hold."""
    indices: Mapping[Any, Any] = sharding.devices_indices_map((batch_size, 1))
    first_rows = {device: rows.indices(batch_size)[0] for device, (rows, _) in indices.items()}
    parts = len(set(first_rows.values()))
    held = {
        first * parts // batch_size
        for device, first in first_rows.items()
        if device.process_index == process
    }
    return HostShard(tuple(sorted(held)), parts)


def global_batch(
    sharding: NamedSharding,
    local: HostFeatures,
    objective: Objective,
    shard: HostShard = HostShard(),  # noqa: B008
) -> dict[str, jax.Array]:
    """The features of a whole batch that an objective reads, from the examples of this process."""
    if missing := objective.features.keys() - local.keys():
        raise UserError(
            f"the objective reads the feature {min(missing)!r}, but the data has only "
            f"{', '.join(local)}; choose another objective.name, or prepare data that has it"
        )
    return {name: _global_array(sharding, local[name], shard) for name in objective.features}


def _global_array(sharding: NamedSharding, local_Rx: NDArray[Any], shard: HostShard) -> jax.Array:
    shape = (len(local_Rx) // len(shard.held) * shard.parts, *local_Rx.shape[1:])

    def on_device(index: Any) -> NDArray[Any]:
        return examples_of_device(local_Rx, shard, index[0])[:, *index[1:]]

    return jax.make_array_from_callback(shape, sharding, on_device)


def examples_of_device(local_Rx: NDArray[Any], shard: HostShard, of_batch: slice) -> NDArray[Any]:
    """The examples of one device, a slice of the whole batch, among those of its process."""
    size = len(local_Rx) // len(shard.held)
    start, stop, _ = of_batch.indices(size * shard.parts)
    part, offset = divmod(start, size)
    first = shard.held.index(part) * size + offset
    return local_Rx[first : first + stop - start]

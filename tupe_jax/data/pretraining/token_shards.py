"""The folder of prepared sequences that `tupe prepare` writes and the readers read.

    index.json                               metadata; written last, so it means "finished"
    train-00000-of-00004.array_record ...    one record per example
    validation-00000-of-00001.array_record
    tokenizer.model                          the SentencePiece model that made the ids

A record is `length` token ids, little-endian: uint16 if the vocabulary size allows it, else uint32.
uint16 halves the disk space and the bandwidth. In a folder of sentence pairs the ids are followed
by `length` segment ids and the label `is_random_next`, uint8 each. Such a folder has format 2,
all others have format 1, as before.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from numpy.typing import ArrayLike, NDArray

from tupe_jax.config.schema import Packing
from tupe_jax.utils.errors import RetryError, UserError, reading_failed, reason
from tupe_jax.utils.files import atomic_file, file_names, file_size, file_sizes
from tupe_jax.utils.object_storage import check_reachable
from tupe_jax.utils.paths import Path

TOKENS, SEGMENTS, IS_RANDOM_NEXT = "tokens", "segments", "is_random_next"
"""The features of an example. `is_random_next` is 1 if the second text of a pair is from another
document, and 0 if it follows the first."""

TOKENS_ONLY, PAIRS = 1, 2
"""The values of `format` in index.json."""
INDEX_FILE = "index.json"
TOKENIZER_FILE = "tokenizer.model"
# One record per group: a shuffled read then decompresses one sequence, not a whole group.
WRITER_OPTIONS = "group_size:1"

DtypeName = Literal["uint16", "uint32"]
RecordType = np.dtype[np.void]
"""The features of a record as a structured type: their names, types and shapes."""
Features = dict[str, NDArray[np.int32]]
"""Examples by feature, `[examples, ...]` each."""


# The fields of the next four classes are the keys of index.json. It calls sequences "rows".


@dataclass(frozen=True)
class ShardFile:
    """One ArrayRecord file: its name, its number of sequences and its size on disk."""

    file: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Split:
    """The shards of `train` or `validation`, in order, and their totals.

    `tokens` counts all ids but [PAD].
    """

    shards: tuple[ShardFile, ...]
    rows: int
    tokens: int
    documents: int


@dataclass(frozen=True)
class SourceCounts:
    """What one source of the task contributed, all passes over it included.

    `tokens` and `documents` are those of the training split. With `--deduplicate=exact`, `compared`
    documents of both splits were compared with all others, and `copies` of them were dropped.
    """

    source: str
    rows: int
    tokens: int
    documents: int
    validation_documents: int
    compared: int = 0
    copies: int = 0
    broken: int = 0
    """Records and files that could not be read and were skipped."""
    first_broken: str = ""
    damaged: int = 0
    """Those of `broken` that are damaged files or row groups: all their further records are lost.
    """
    passes: float = 1.0
    """Passes over the source: its weight in the task. Broken records are counted once."""
    alone: int = 0
    """Documents without sentence pairs, because each was the only one of its shard."""


@dataclass(frozen=True)
class PreparedIndex:
    """The metadata of a prepared folder."""

    task: str
    vocabulary_sha256: str
    vocab_size: int
    length: int
    seed: int
    splits: Mapping[str, Split]
    tokenizer: str | None = None
    """The name of the tokenizer file. None in folders of older versions, which have no copy."""
    packing: Packing = "stream"
    sources: tuple[SourceCounts, ...] = ()
    """In the order of the task. Empty in folders of older versions."""

    @property
    def dtype(self) -> DtypeName:
        return dtype_name(self.vocab_size)

    @property
    def record(self) -> RecordType:
        return record_type(self.packing, self.vocab_size, self.length)

    @property
    def format(self) -> int:
        return TOKENS_ONLY if self.record.names == (TOKENS,) else PAIRS


def dtype_name(vocab_size: int) -> DtypeName:
    """Return the smallest unsigned type that holds every token id."""
    return "uint16" if vocab_size <= 2**16 else "uint32"


def shard_file_name(split: str, number: int, count: int) -> str:
    """Return the file name of shard `number` of `count`."""
    return f"{split}-{number:05d}-of-{count:05d}.array_record"


def record_type(packing: Packing, vocab_size: int, length: int) -> RecordType:
    """Return the features of the examples that a packing makes."""
    of_pairs = [(SEGMENTS, "u1", (length,)), (IS_RANDOM_NEXT, "u1", ())]
    tokens = (TOKENS, np.dtype(dtype_name(vocab_size)).newbyteorder("<"), (length,))
    return np.dtype([tokens, *(of_pairs if packing == "pairs" else [])])


def encode_example(example: Mapping[str, ArrayLike], record: RecordType) -> bytes:
    """Return the record of an example. Raise ValueError if a type cannot hold a value."""
    encoded = np.zeros((), record)
    for name in record.names or ():
        values, dtype = np.asarray(example[name]), record[name].base
        if values.size and (values.min() < 0 or values.max() > np.iinfo(dtype).max):
            raise ValueError(f"{name} {values.min()} to {values.max()} do not fit {dtype.name}")
        encoded[name] = values
    return encoded.tobytes()


def decode_records(records: Sequence[bytes], record: RecordType) -> Features:
    """Return the features of records, with two copies in total."""
    decoded = np.frombuffer(b"".join(records), record)
    return {name: decoded[name].astype(np.int32) for name in record.names or ()}


def examples_of(features: Mapping[str, NDArray[Any]]) -> Iterator[Mapping[str, Any]]:
    """Return the examples of `[examples, ...]` features one by one."""
    for number in range(len(features[TOKENS])):
        yield {name: feature[number] for name, feature in features.items()}


def stack_examples(examples: Sequence[Mapping[str, ArrayLike]]) -> Features:
    """Return the features of at least one example, `[examples, ...]` each."""
    return {
        name: np.stack([np.asarray(example[name], np.int32) for example in examples])
        for name in examples[0]
    }


def write_shard(
    path: Path, examples: Iterable[Mapping[str, ArrayLike]], record: RecordType
) -> ShardFile:
    """Write all examples to one file, atomically."""
    count = 0
    with atomic_file(path) as unfinished:
        with _writer_errors(path):
            writer = ArrayRecordWriter(str(unfinished), WRITER_OPTIONS)
        for example in examples:
            encoded = encode_example(example, record)
            with _writer_errors(path):
                writer.write(encoded)
            count += 1
        with _writer_errors(path):
            writer.close()
    return ShardFile(file=path.name, rows=count, bytes=file_size(path))


@contextmanager
def _writer_errors(path: Path) -> Iterator[None]:
    """Raise an error of ArrayRecord, such as a full disk, as one line. It knows only texts."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).partition(";")[0]
        raise RetryError(
            f"{path}: cannot write ({text}); free disk space or check the storage, and run the "
            "same command again (finished shards are kept)"
        ) from None


def write_index(folder: Path, index: PreparedIndex) -> None:
    """Mark the folder as finished. All shards must be complete on disk before this call."""
    content = {"format": index.format, **asdict(index), "dtype": index.dtype}
    with atomic_file(folder / INDEX_FILE) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_index(folder: Path, *, sizes: bool = True) -> PreparedIndex:
    """Return the index of a finished folder after checking that all its shards are complete.

    Without `sizes`, only one listing of the folder checks that no shard is missing. On a mounted
    bucket each size is a request, so only one process of a run compares them.
    """
    index = parse_index(folder)
    found = file_sizes(folder) if sizes else dict.fromkeys(file_names(folder), 0)
    for name, split in index.splits.items():
        total = sum(shard.rows for shard in split.shards)
        if total != split.rows:
            raise UserError(
                f"{folder / INDEX_FILE}: split {name!r} lists {split.rows} sequences, but its "
                f"shards have {total}; prepare the folder again"
            )
        for shard in split.shards:
            path = folder / shard.file
            if shard.file not in found:
                raise UserError(
                    f"{path}: missing, but listed in {INDEX_FILE}; copy it, or prepare the folder "
                    "again"
                )
            if sizes and found[shard.file] != shard.bytes:
                raise UserError(
                    f"{path}: {found[shard.file]} bytes, but {INDEX_FILE} lists {shard.bytes}; the "
                    "shard is truncated or changed: copy it, or prepare the folder again"
                )
    return index


def require_tokenizer(folder: Path, index: PreparedIndex, sha256: str) -> None:
    """Raise unless the sequences were made with the tokenizer of this hash."""
    if index.vocabulary_sha256 != sha256:
        raise UserError(
            f"{folder}: prepared with tokenizer {index.vocabulary_sha256[:12]}, but the given "
            f"tokenizer is {sha256[:12]}; set data.vocabulary to the file used by `tupe prepare`, "
            "or prepare the folder again"
        )


def check_tokenizer_file(folder: Path, index: PreparedIndex) -> None:
    """Raise unless the tokenizer file of the folder, if any, is the one that made its ids."""
    if index.tokenizer is None:
        return
    path = folder / index.tokenizer
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise reading_failed(
            f"{path}: cannot read the tokenizer ({reason(error)}); copy it, set data.vocabulary "
            "to another copy, or prepare the folder again",
            error,
        ) from None
    if sha256 != index.vocabulary_sha256:
        raise UserError(
            f"{path}: the sha256 of this tokenizer is {sha256[:12]}, but {INDEX_FILE} expects "
            f"{index.vocabulary_sha256[:12]}; copy the right file, or prepare the folder again"
        )


def parse_index(folder: Path) -> PreparedIndex:
    """Return the index of a finished folder without checking its shards."""
    path = folder / INDEX_FILE
    check_reachable(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; create it with `tupe prepare`")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{folder}: no {INDEX_FILE}, so it is not a finished prepared folder; finish it with "
            "`tupe prepare`"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not JSON ({error}); prepare the folder again") from None
    try:
        if content["format"] not in (TOKENS_ONLY, PAIRS):
            raise UserError(
                f"{path}: format {content['format']}, but this version reads formats "
                f"{TOKENS_ONLY} and {PAIRS}; prepare the folder again"
            )
        index = PreparedIndex(
            task=content["task"],
            vocabulary_sha256=content["vocabulary_sha256"],
            vocab_size=content["vocab_size"],
            length=content["length"],
            seed=content["seed"],
            splits={name: _parse_split(split) for name, split in content["splits"].items()},
            tokenizer=content.get("tokenizer"),
            packing=content.get("packing", "stream"),
            sources=tuple(SourceCounts(**counts) for counts in content.get("sources", ())),
        )
        if index.tokenizer is not None and Path(str(index.tokenizer)).name != index.tokenizer:
            raise UserError(
                f"{path}: tokenizer {index.tokenizer!r} is not a file name in the folder; prepare "
                "the folder again"
            )
        if index.packing not in get_args(Packing):
            raise UserError(
                f"{path}: this version does not know packing {index.packing!r}; prepare the folder "
                "again"
            )
        if content["format"] != index.format:
            raise UserError(
                f"{path}: format {content['format']}, but packing {index.packing!r} has format "
                f"{index.format}; prepare the folder again"
            )
        if content["dtype"] != index.dtype:
            raise UserError(
                f"{path}: dtype {content['dtype']}, but a vocabulary of {index.vocab_size} tokens "
                f"is stored as {index.dtype}; prepare the folder again"
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: not the index of a prepared folder ({error!r}); prepare the folder again"
        ) from None
    return index


def _parse_split(content: Mapping[str, Any]) -> Split:
    return Split(
        shards=tuple(ShardFile(**shard) for shard in content["shards"]),
        rows=content["rows"],
        tokens=content["tokens"],
        documents=content["documents"],
    )

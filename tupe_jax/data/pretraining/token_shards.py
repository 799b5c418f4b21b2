"""The folder of prepared token rows: what `tupe prepare` writes and the readers read.

    index.json                               what the rows are; written last: it means "finished"
    train-00000-of-00004.array_record ...    one record per row
    validation-00000-of-00001.array_record
    tokenizer.model                          the SentencePiece model that made the ids

A record is `length` token ids, little-endian: uint16 where the vocabulary allows it (half the disk
and half the bandwidth of a pod's input), else uint32.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from numpy.typing import ArrayLike, NDArray

from tupe_jax.config.schema import Packing
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file

FORMAT = 1
INDEX_FILE = "index.json"
TOKENIZER_FILE = "tokenizer.model"
# One record per group: a shuffled read then decompresses one row, not a whole group of them.
WRITER_OPTIONS = "group_size:1"

DtypeName = Literal["uint16", "uint32"]


@dataclass(frozen=True)
class Shard:
    """One ArrayRecord file: its name in the folder, its rows, and its size on disk."""

    file: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Split:
    """The shards of `train` or `validation`, in order, and what they hold together.

    `tokens` counts all ids but [PAD].
    """

    shards: tuple[Shard, ...]
    rows: int
    tokens: int
    documents: int


@dataclass(frozen=True)
class Index:
    """What a prepared folder holds, and from what it was made."""

    task: str
    vocabulary_sha256: str
    vocab_size: int
    length: int
    seed: int
    splits: Mapping[str, Split]
    tokenizer: str | None = None
    """Its file in the folder; None in folders of older versions, which have none."""
    packing: Packing = "stream"

    @property
    def dtype(self) -> DtypeName:
        return dtype_name(self.vocab_size)


def dtype_name(vocab_size: int) -> DtypeName:
    """Return the smallest unsigned type that holds every id of the vocabulary."""
    return "uint16" if vocab_size <= 2**16 else "uint32"


def shard_file(split: str, number: int, count: int) -> str:
    """Return the name of shard `number` of `count`."""
    return f"{split}-{number:05d}-of-{count:05d}.array_record"


def encode_row(tokens: ArrayLike, dtype: DtypeName) -> bytes:
    """Return a row's record; an id that `dtype` cannot hold is an error, never a wrapped number."""
    ids = np.asarray(tokens)
    if ids.size and (ids.min() < 0 or ids.max() > np.iinfo(dtype).max):
        raise ValueError(f"token ids {ids.min()} to {ids.max()} do not fit {dtype}")
    return ids.astype(_little_endian(dtype)).tobytes()


def decode_row(record: bytes, dtype: DtypeName) -> NDArray[np.int32]:
    """Return the token ids of one record, `[length]`."""
    return np.frombuffer(record, _little_endian(dtype)).astype(np.int32)


def decode_rows(records: Sequence[bytes], dtype: DtypeName, length: int) -> NDArray[np.int32]:
    """Return the token ids of many records, `[rows, length]`, with two copies for all of them."""
    return decode_row(b"".join(records), dtype).reshape(len(records), length)


def write_shard(path: Path, rows: Iterable[ArrayLike], dtype: DtypeName) -> Shard:
    """Write all rows to one file, which takes its name only when it is complete."""
    count = 0
    with atomic_file(path) as unfinished:
        writer = ArrayRecordWriter(str(unfinished), WRITER_OPTIONS)
        for row in rows:
            writer.write(encode_row(row, dtype))
            count += 1
        writer.close()
    return Shard(file=path.name, rows=count, bytes=path.stat().st_size)


def write_index(folder: Path, index: Index) -> None:
    """Declare the folder finished. All shards must be complete on disk before this call."""
    content = {"format": FORMAT, **asdict(index), "dtype": index.dtype}
    with atomic_file(folder / INDEX_FILE) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_index(folder: Path) -> Index:
    """Return the index of a finished folder whose shards are all there in full."""
    index = parse_index(folder)
    for name, split in index.splits.items():
        rows_of_shards = sum(shard.rows for shard in split.shards)
        if rows_of_shards != split.rows:
            raise UserError(
                f"{folder / INDEX_FILE}: split {name!r} claims {split.rows} rows, its shards "
                f"{rows_of_shards}; prepare the folder again"
            )
        for shard in split.shards:
            _check_size(folder / shard.file, shard.bytes)
    return index


def require_vocabulary(folder: Path, index: Index, sha256: str) -> None:
    """Fail unless the rows were made with the vocabulary of this hash."""
    if index.vocabulary_sha256 != sha256:
        raise UserError(
            f"{folder}: its rows were made with vocabulary {index.vocabulary_sha256[:12]}, but the "
            f"given vocabulary is {sha256[:12]}; set data.vocabulary to the one used by "
            "`tupe prepare`, or prepare again"
        )


def check_tokenizer(folder: Path, index: Index) -> None:
    """Fail if the index names a tokenizer file that is not the one its rows were made with."""
    if index.tokenizer is None:
        return
    path = folder / index.tokenizer
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(
            f"{path}: cannot read the tokenizer ({error.strerror}); copy it, set data.vocabulary "
            "to another copy, or prepare the folder again"
        ) from None
    if sha256 != index.vocabulary_sha256:
        raise UserError(
            f"{path}: this tokenizer is {sha256[:12]}, but {INDEX_FILE} says "
            f"{index.vocabulary_sha256[:12]}; copy the right one, or prepare the folder again"
        )


def _little_endian(dtype: DtypeName) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")


def _check_size(path: Path, expected_bytes: int) -> None:
    try:
        actual_bytes = path.stat().st_size
    except FileNotFoundError:
        raise UserError(
            f"{path}: this shard is listed in {INDEX_FILE} but is not there; copy it, or prepare "
            "the folder again"
        ) from None
    if actual_bytes != expected_bytes:
        raise UserError(
            f"{path}: {actual_bytes} bytes, but {INDEX_FILE} says {expected_bytes}; the shard is "
            "truncated or changed: copy it, or prepare the folder again"
        )


def parse_index(folder: Path) -> Index:
    """Return the index of a finished folder; its shards are not looked at."""
    path = folder / INDEX_FILE
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; `tupe prepare` makes one")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{folder}: no {INDEX_FILE}, so this is not a finished folder of prepared rows; "
            "run `tupe prepare` on it (again)"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not JSON ({error}); prepare the folder again") from None
    try:
        if content["format"] != FORMAT:
            raise UserError(
                f"{path}: format {content['format']}, but this version reads format {FORMAT}; "
                "prepare the folder again"
            )
        index = Index(
            task=content["task"],
            vocabulary_sha256=content["vocabulary_sha256"],
            vocab_size=content["vocab_size"],
            length=content["length"],
            seed=content["seed"],
            splits={name: _parse_split(split) for name, split in content["splits"].items()},
            tokenizer=content.get("tokenizer"),
            packing=content.get("packing", "stream"),
        )
        if index.tokenizer is not None and Path(str(index.tokenizer)).name != index.tokenizer:
            raise UserError(
                f"{path}: tokenizer {index.tokenizer!r} is not the name of a file in the folder; "
                "prepare the folder again"
            )
        if index.packing not in get_args(Packing):
            raise UserError(
                f"{path}: packing {index.packing!r} is unknown to this version; prepare the folder "
                "again"
            )
        if content["dtype"] != index.dtype:
            raise UserError(
                f"{path}: dtype {content['dtype']}, but {index.vocab_size} pieces are stored as "
                f"{index.dtype}; prepare the folder again"
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not an index of prepared rows ({error!r})") from None
    return index


def _parse_split(content: Mapping[str, Any]) -> Split:
    return Split(
        shards=tuple(Shard(**shard) for shard in content["shards"]),
        rows=content["rows"],
        tokens=content["tokens"],
        documents=content["documents"],
    )

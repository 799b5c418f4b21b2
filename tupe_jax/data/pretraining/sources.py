"""Corpora as SeqIO data sources: text files, TFDS data sets and the built-in corpus.

A source yields documents. A document is a string of lines joined by newlines. Every source has the
splits `train` and `validation`, divided by `splits.is_held_out`. This also holds for TFDS data sets
that ship with other splits: only their `train` split is read.
"""

import abc
import functools
import glob
import gzip
import hashlib
import io
import math
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tupe_jax.data import builtin
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.tf_utils import (
    DOCUMENTS_AT_ONCE,
    call,
    find_builder,
    map_documents,
    seqio,
    strings,
    tf,
    tfds,
)
from tupe_jax.utils.errors import UserError, reading_failed, reason
from tupe_jax.utils.files import file_size
from tupe_jax.utils.object_storage import check_reachable, filesystem, metadata, storage_errors
from tupe_jax.utils.paths import SCHEME, Path, is_object, storage_path

TRAIN, VALIDATION = "train", "validation"
# The text of one shard: about half a minute of work for one core. A small corpus is divided into
# smaller shards to use all cores, but into few enough that starting a worker pays off.
SHARD_BYTES = 1 << 26
SMALL_SHARD_BYTES = 1 << 23
MOST_SMALL_SHARDS = 16
# The size of `builtin` without a number: minutes of work, enough for tiny models.
BUILTIN_DOCUMENTS = 20_000
_NO_LIMIT = 1 << 62

TextStream = io.BufferedReader | gzip.GzipFile


def parse_source(spec: str, seed: int = 0) -> "DocumentSource":
    """Return the source for a spec like `text:books/*.txt.gz`, `wiki40b/en` or `builtin:5000`.

    Only the built-in corpus depends on the seed.
    """
    kind, _, argument = spec.partition(":")
    if kind == "text" and argument:
        return TextFiles(argument)
    if spec.partition("/")[0] in TFDS_LAYOUTS:
        return Tfds(spec)
    if spec == "builtin":
        return Builtin(BUILTIN_DOCUMENTS, seed)
    if kind == "builtin" and argument.isdecimal() and int(argument):
        return Builtin(int(argument), seed)
    raise UserError(
        f"unknown source {spec!r}; expected builtin, builtin:DOCUMENTS, text:GLOB or a TFDS data "
        f"set: {', '.join(TFDS_LAYOUTS)}"
    )


class DocumentSource(seqio.DataSource, metaclass=abc.ABCMeta):
    """A corpus that can be divided into any number of shards up to `most_shards`."""

    def __init__(self, spec: str, text_bytes: int, most_shards: int, identity: str):
        """Describe the corpus without reading a document.

        `parse_source(spec)` returns an equal source. `text_bytes` is the approximate size of the
        text. `identity` changes when the corpus changes.
        """
        super().__init__(splits=(TRAIN, VALIDATION))
        self.spec = spec
        self.text_bytes = text_bytes
        self.most_shards = most_shards
        self.identity = identity

    @abc.abstractmethod
    def documents(self, index: int, count: int) -> tf.data.Dataset:
        """Return shard `index` of `count`, always in the same order."""

    @property
    def default_shards(self) -> int:
        small_shards = min(math.ceil(self.text_bytes / SMALL_SHARD_BYTES), MOST_SMALL_SHARDS)
        wanted = max(small_shards, math.ceil(self.text_bytes / SHARD_BYTES))
        return max(1, min(wanted, self.most_shards))

    # The interface of seqio.DataSource.

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [f"{self.spec}#{number}" for number in range(self.default_shards)]

    def num_input_examples(self, split: str) -> int | None:
        return None

    def get_dataset(
        self,
        split: str = TRAIN,
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
    ) -> tf.data.Dataset:
        """Return the documents of a split, in order: SeqIO shuffles sequences, not documents."""
        if split not in self.splits:
            raise UserError(f"{self.spec}: no split {split!r}; expected {' or '.join(self.splits)}")
        shard = shard_info or seqio.ShardInfo(index=0, num_shards=1)
        if shard.num_shards > self.most_shards:
            raise UserError(
                f"{self.spec}: {shard.num_shards} shards requested, but it can be divided into at "
                f"most {self.most_shards}; use fewer shards"
            )
        documents = self.documents(shard.index, shard.num_shards)
        wanted = split == VALIDATION
        return map_documents(
            documents, lambda texts: [text for text in texts if is_held_out(text) == wanted]
        )


class TextFiles(DocumentSource):
    """Plain or gzipped files: a sentence or paragraph per line, a blank line between documents.

    A file is read in blocks of its uncompressed text, in any order. A block holds the documents
    whose preceding blank line begins in it, so every document is in exactly one block, whatever its
    length. One large file is therefore as easy to divide into shards as many small ones.
    """

    def __init__(self, pattern: str, block_bytes: int = 1 << 20):
        self._block_bytes = block_bytes
        self._files = match_files(pattern)
        stats = [(file, *_size_and_version(file)) for file in self._files]
        sizes = [_text_bytes(file, size) for file, size, _ in stats]
        super().__init__(
            spec=f"text:{pattern}",
            text_bytes=sum(sizes),
            most_shards=sum(math.ceil(size / block_bytes) for size in sizes),
            identity=hashlib.sha256(repr(stats).encode()).hexdigest(),
        )

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        def read(file: bytes, block: np.int64) -> tuple[Any, np.bool_]:
            documents = read_block(file.decode(), int(block), self._block_bytes)
            return strings(documents or []), np.bool_(documents is not None)

        def file_documents(file: tf.Tensor, first: tf.Tensor, step: tf.Tensor) -> tf.data.Dataset:
            blocks = tf.data.Dataset.range(first, _NO_LIMIT, step)
            read_blocks = blocks.map(lambda block: call(read, [file, block], (tf.string, tf.bool)))
            return (
                read_blocks.take_while(lambda _, inside: tf.ensure_shape(inside, []))
                .map(lambda documents, _: tf.ensure_shape(documents, [None]))
                .unbatch()
            )

        blocks = _blocks_of_shard(self._files, index, count)
        if not blocks:
            return tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
        files, firsts, steps = zip(*blocks, strict=True)
        return tf.data.Dataset.from_tensor_slices(
            (list(files), np.array(firsts, np.int64), np.array(steps, np.int64))
        ).flat_map(file_documents)


def _blocks_of_shard(files: Sequence[str], index: int, count: int) -> list[tuple[str, int, int]]:
    """Return (file, first block, step) for each file of one shard.

    Shards take the blocks of each file in turn. A gzipped file must be decompressed from its start,
    so if there are enough of them, each belongs to one shard.
    """
    whole_files = sum(map(_is_gzip, files)) >= count
    blocks = []
    for number, file in enumerate(files):
        if whole_files and _is_gzip(file):
            if number % count == index:
                blocks.append((file, 0, 1))
        else:
            blocks.append((file, (index - number) % count, count))
    return blocks


def match_files(pattern: str) -> list[str]:
    """Return the files that match a glob, sorted. Raise if there is none or one is unreadable."""
    check_reachable(storage_path(pattern))
    if is_object(pattern):
        files = sorted(f"{SCHEME}{name}" for name in filesystem().glob(pattern))
    else:
        files = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    if not files:
        raise UserError(f"no file matches {pattern!r}; check the quotes around it in the shell")
    for file in files:
        if not (is_object(file) or os.access(file, os.R_OK)):
            raise UserError(f"{file}: permission denied; make the file readable")
    if not any(file_size(Path(file)) for file in files):
        raise UserError(f"{files[0]}: all files that match {pattern!r} are empty")
    return files


def _is_gzip(file: str) -> bool:
    return file.endswith(".gz")


def _text_bytes(file: str, size: int) -> int:
    """Return the size of the text: exact for plain files, a typical ratio for gzipped English."""
    return size * 3 if _is_gzip(file) else size


def _size_and_version(file: str) -> tuple[int, int]:
    """Return the size and the time of the last change, or the generation of an object."""
    if is_object(file):
        found = metadata(Path(file))
        return int(found["size"]), int(found["generation"])
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def read_block(file: str, block: int, block_bytes: int) -> list[str] | None:
    """Return the documents of one block, or None past the end of the file.

    Empty lines around documents and white space around lines are dropped.
    """
    begin, end = block * block_bytes, (block + 1) * block_bytes
    # The byte before the block shows whether a line begins exactly at the block's start.
    start = max(begin - 1, 0)
    with _stream_lock, storage_errors():
        try:
            stream = _open(file, _size_and_version(file)[1])
            if stream.seek(start) < start or not stream.peek(1):
                return None
            if begin:
                stream.readline()
            return list(_documents(file, stream, begin, end))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{file}: corrupt gzip file ({error}); copy it again") from None
        except OSError as error:
            raise reading_failed(
                f"{file}: cannot read it ({reason(error)}); do not move or delete files in use",
                error,
            ) from None


def _documents(file: str, stream: TextStream, begin: int, end: int) -> Iterator[str]:
    lines: list[str] = []
    owned = begin == 0  # whether the current document began in this block
    position = stream.tell()
    for raw in stream:
        text = raw.strip()
        if not text:
            if owned and lines:
                yield "\n".join(lines)
            lines = []
            owned = position < end
        elif owned:
            lines.append(_decode(file, stream, position, text))
        if position >= end and not owned:
            return
        position += len(raw)
    if owned and lines:
        yield "\n".join(lines)


def _decode(file: str, stream: TextStream, position: int, text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file}, line {_line_number(stream, position)}: byte 0x{text[error.start]:02x} is not "
            f"UTF-8 ({error.reason}); convert the file to UTF-8 or delete the line"
        ) from None


def _line_number(stream: TextStream, position: int) -> int:
    """Count the lines before a position. This is slow, and only done for an error message."""
    stream.seek(0)
    number = 1
    while stream.tell() < position:
        stream.readline()
        number += 1
    return number


# Blocks are mostly read in order. An open gzip stream then seeks forward at no cost, where a new
# one would decompress everything before the block. tf.data may call `read_block` from several
# threads, which share these streams.
_stream_lock = threading.Lock()


@functools.lru_cache(maxsize=2)
def _open(file: str, version: int) -> TextStream:
    if is_object(file):
        raw = filesystem().open(file, "rb")
        return gzip.GzipFile(fileobj=raw) if _is_gzip(file) else io.BufferedReader(raw)
    return gzip.GzipFile(file, "rb") if _is_gzip(file) else open(file, "rb")


class Tfds(DocumentSource):
    """A text data set of TFDS that is already prepared on disk. Nothing is downloaded."""

    def __init__(self, name: str, data_dir: str | None = None):
        dataset, _, config = name.partition("/")
        config = config or _TFDS_DEFAULT_CONFIGS.get(dataset, "")
        full_name = f"{dataset}/{config}" if config else dataset
        self._builder = find_builder(full_name, data_dir)
        train = self._builder.info.splits[TRAIN]
        self._layout = TFDS_LAYOUTS[dataset]
        super().__init__(
            spec=full_name,
            text_bytes=train.num_bytes,
            most_shards=train.num_examples,
            identity=f"{self._builder.info.full_name} {train.num_examples} {train.num_bytes}",
        )

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        part = tfds.even_splits(TRAIN, n=count)[index] if count > 1 else TRAIN
        examples = self._builder.as_dataset(
            split=part,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding({"text": True}),
            # One file after the other: the order does not depend on the machine.
            read_config=tfds.ReadConfig(try_autocache=False, interleave_cycle_length=1),
        )
        return map_documents(
            examples.map(lambda example: example["text"]),
            lambda texts: [document for text in texts if (document := self._layout(text))],
        )


def _nonblank_lines(text: str) -> str:
    """Return the lines that are not blank: one sentence (lm1b) or one paragraph (c4) each."""
    stripped = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in stripped if line)


def _wiki40b_paragraphs(text: str) -> str:
    """Return the paragraphs of a wiki40b article, without its title and section headings."""
    # split() returns the text before the first marker, then markers and texts in turn.
    parts = re.split(r"\n_START_(ARTICLE|SECTION|PARAGRAPH)_\n", text)
    marked = zip(parts[1::2], parts[2::2], strict=True)
    paragraphs = (body for marker, body in marked if marker == "PARAGRAPH")
    return _nonblank_lines("\n".join(body.replace("_NEWLINE_", "\n") for body in paragraphs))


def _wikipedia_lines(text: str) -> str:
    """Return the lines of a Wikipedia article, without its list of categories."""
    lines = _nonblank_lines(text).split("\n")
    return "\n".join(line for line in lines if not line.startswith("Category:"))


# How to turn the feature `text` of a TFDS builder into a document.
TFDS_LAYOUTS: Mapping[str, Callable[[str], str]] = {
    "c4": _nonblank_lines,
    "lm1b": _nonblank_lines,
    "wiki40b": _wiki40b_paragraphs,
    "wikipedia": _wikipedia_lines,
}
_TFDS_DEFAULT_CONFIGS = {"c4": "en", "wiki40b": "en", "wikipedia": "20230601.en"}


class Builtin(DocumentSource):
    """The first documents of the generated corpus for a seed. Needs no download."""

    def __init__(self, documents: int, seed: int):
        self._documents, self._seed = documents, seed
        sample = [_builtin_text(seed, number) for number in range(min(documents, 32))]
        super().__init__(
            spec=f"builtin:{documents}",
            text_bytes=documents * sum(map(len, sample)) // len(sample),
            most_shards=documents,
            identity=f"builtin {documents} documents, seed {seed}",
        )

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        first = self._documents * index // count
        last = self._documents * (index + 1) // count

        def generate(numbers: Any) -> Any:
            return strings([_builtin_text(self._seed, int(number)) for number in numbers])

        batches = tf.data.Dataset.range(first, last).batch(DOCUMENTS_AT_ONCE)
        return batches.map(
            lambda numbers: tf.ensure_shape(call(generate, [numbers], tf.string), [None])
        ).unbatch()


# Cached because a corpus is read three times: for the tokenizer, for training, for validation.
@functools.lru_cache(maxsize=BUILTIN_DOCUMENTS)
def _builtin_text(seed: int, number: int) -> str:
    sentences = builtin.document(seed, number).sentences
    return "\n".join(sentence.text for sentence in sentences)

"""Find copies of documents in the whole corpus: `tupe prepare --deduplicate=exact`.

Documents are copies if their letters and digits are the same, by a hash of 64 bits
(`splits.fingerprint`). The first in corpus order, the order of the shards, is kept. This takes two
stages before the shards are made; each of their jobs can run on any machine, in any order:

    hashes-00003   the hashes of the documents of shard 3, sorted
    copies-00001   of one range of hashes: the documents to drop, sorted by shard

So the memory depends on the size of a range, not on that of the corpus.

Passes over one source repeat it on purpose. A source keeps a document in each of its passes, or in
none if another source has it first.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.pretraining.sources import DocumentSource
from tupe_jax.data.pretraining.splits import fingerprint, is_in_share
from tupe_jax.data.tf_utils import DOCUMENTS_AT_ONCE, call, elements, strings, texts, tf
from tupe_jax.utils.files import atomic_file, file_range, in_threads
from tupe_jax.utils.paths import Path

# The files of hashes are divided into this many parts of equal ranges. A range is some of them. So
# the memory is bounded for up to 17 billion documents, for 32 kB at the head of each file.
PARTS = 1 << 12
# `find_copies` takes 340 MB with as many, the hashes included.
DOCUMENTS_PER_RANGE = 1 << 22

_HASH = np.dtype([("hash", "<u8"), ("document", "<u4")])
_COPY = np.dtype([("document", "<u4")])

Documents = NDArray[np.uint32]
"""Numbers of documents in a shard of a source, ascending. Both splits are counted."""
Records = NDArray[np.void]


def hash_documents(
    source: DocumentSource, index: int, count: int, share: float, report: Callable[[int], None]
) -> Records:
    """Return the hash and the number of each document of a shard that is in the share, sorted."""
    hashes: list[int] = []
    numbers: list[int] = []
    first = 0
    for batch in elements(source.documents(index, count).batch(DOCUMENTS_AT_ONCE)):
        for number, text in enumerate(texts(batch), first):
            if share == 1 or is_in_share(share, text):
                hashes.append(fingerprint(text))
                numbers.append(number)
        first += len(batch)
        report(0)
    found = np.zeros(len(hashes), _HASH)
    found["hash"], found["document"] = hashes, numbers
    return np.sort(found, order=("hash", "document"))


def write_hashes(path: Path, hashes: Records) -> None:
    """Write the result of `hash_documents`, so that ranges can be read."""
    part_of = (hashes["hash"] >> np.uint64(64 - PARTS.bit_length() + 1)).astype(np.int64)
    _write_parts(path, hashes, np.searchsorted(part_of, np.arange(PARTS + 1)))


def count_hashes(file_bytes: int) -> int:
    """Return the number of documents in a file of hashes, by its size."""
    return (file_bytes - _header_bytes(PARTS)) // _HASH.itemsize


def range_count(documents: int) -> int:
    """Return the number of ranges for a corpus, a divisor of PARTS."""
    wanted = max(1, math.ceil(documents / DOCUMENTS_PER_RANGE))
    return min(PARTS, 1 << (wanted - 1).bit_length())


def read_hashes(paths: Sequence[Path], number: int, ranges: int) -> list[Records]:
    """Return range `number` of `ranges` of each file of hashes."""
    parts = PARTS // ranges
    begin, end = number * parts, (number + 1) * parts
    return in_threads(lambda path: _read_parts(path, PARTS, begin, end, _HASH), paths)


def find_copies(
    hashes: Sequence[Records], starts_source: Sequence[bool], starts_pass: Sequence[bool]
) -> list[Documents]:
    """Return the documents to drop from each shard, given the same range of each.

    The shards are in corpus order. `starts_source` and `starts_pass` tell which of them begin
    another source, and which another pass over a source.
    """
    shard = np.repeat(np.arange(len(hashes), dtype=np.uint32), [len(each) for each in hashes])
    merged = np.concatenate(hashes)
    # Stable: copies stay in corpus order.
    order = np.argsort(merged["hash"], kind="stable")
    value, document, shard = merged["hash"][order], merged["document"][order], shard[order]
    source, of_pass = np.cumsum(starts_source)[shard], np.cumsum(starts_pass)[shard]
    is_first = np.ones(len(value), bool)
    is_first[1:] = value[1:] != value[:-1]
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(value)), 0))
    is_first_in_pass = is_first.copy()
    is_first_in_pass[1:] |= of_pass[1:] != of_pass[:-1]
    is_copy = ~is_first_in_pass | (source != source[first])
    shard, document = shard[is_copy], document[is_copy]
    order = np.lexsort((document, shard))
    ends = np.searchsorted(shard[order], np.arange(1, len(hashes)))
    return np.split(document[order], ends)


def write_copies(path: Path, copies: Sequence[Documents]) -> None:
    """Write the result of `find_copies`."""
    records = np.concatenate(copies).astype(_COPY)
    _write_parts(path, records, np.cumsum([0, *map(len, copies)]))


def read_copies(paths: Sequence[Path], shard: int, shards: int) -> Documents:
    """Return the documents to drop from a shard, by the files of all ranges."""
    parts = in_threads(lambda path: _read_parts(path, shards, shard, shard + 1, _COPY), paths)
    return np.sort(np.concatenate(parts)["document"])


class WithoutCopies(DocumentSource):
    """One shard of a source without the given documents."""

    def __init__(self, source: DocumentSource, copies: Documents):
        self._source, self._copies = source, copies
        super().__init__(source.spec, source.text_bytes, source.most_shards, source.identity)

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        def keep(batch: np.int64, values: NDArray[np.bytes_]) -> NDArray[np.object_]:
            first = int(batch) * DOCUMENTS_AT_ONCE
            begin, end = np.searchsorted(self._copies, [first, first + len(values)])
            kept = np.delete(np.arange(len(values)), self._copies[begin:end] - first)
            return strings(texts([values[number] for number in kept]))

        batches = self._source.documents(index, count).batch(DOCUMENTS_AT_ONCE).enumerate()
        return batches.map(
            lambda batch, values: tf.ensure_shape(call(keep, [batch, values], tf.string), [None])
        ).unbatch()


def _header_bytes(parts: int) -> int:
    return 8 * (parts + 1)


def _write_parts(path: Path, records: Records, ends: NDArray[np.int64]) -> None:
    """Write records in parts. Part n is records `ends[n]` to `ends[n + 1]`."""
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(ends.astype("<i8").tobytes() + records.tobytes())


def _read_parts(path: Path, parts: int, begin: int, end: int, dtype: np.dtype[np.void]) -> Records:
    """Return the records of parts `begin` to `end` of a file with this many parts."""
    ends = np.frombuffer(file_range(path, 8 * begin, 8 * (end - begin + 1)), "<i8")
    start, size = _header_bytes(parts) + ends[0] * dtype.itemsize, (ends[-1] - ends[0])
    return np.frombuffer(file_range(path, int(start), int(size) * dtype.itemsize), dtype)

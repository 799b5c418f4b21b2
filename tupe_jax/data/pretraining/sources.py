"""Where documents come from: SeqIO data sources for text files, TFDS and the built-in corpus.

A source gives scalar strings, one document each, its lines joined by newlines. Every source has
the splits `train` and `validation`: the documents held out by their own text (see `held_out`), so
that one rule serves all, also those that TFDS ships with splits of its own (only their `train`
split is read).
"""

import abc
import functools
import hashlib
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tupe_jax.data import builtin
from tupe_jax.data.pretraining import layouts, text_files
from tupe_jax.data.pretraining import splits as held_out
from tupe_jax.data.pretraining.graph import DOCUMENTS_AT_ONCE, call, map_documents, strings
from tupe_jax.data.tensorflow_on_cpu import seqio, tf, tfds
from tupe_jax.data.tfds_on_disk import find_builder
from tupe_jax.utils.errors import UserError

TRAIN, VALIDATION = "train", "validation"
# The input of a shard: about half a minute of work for one core. A small corpus is divided more
# finely, so that all cores have something to do, but not so finely that starting takes longer.
SHARD_BYTES = 1 << 26
SMALL_SHARD_BYTES = 1 << 23
MOST_SMALL_SHARDS = 16
# How many documents `builtin` is, without a number: minutes of work, enough for tiny models.
BUILTIN_DOCUMENTS = 20_000
_NO_LIMIT = 1 << 62


class DocumentSource(seqio.DataSource, metaclass=abc.ABCMeta):
    """A corpus that can be divided into any number of shards up to `most_shards`."""

    def __init__(self, spec: str, text_bytes: int, most_shards: int, identity: str):
        """Describe the corpus; no document is read yet.

        `parse_source(spec)` makes this source again; there are about `text_bytes` of text;
        `identity` changes when the corpus does.
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

    # What SeqIO wants to know of a source.

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
        """Return one side of the corpus, in order: rows are shuffled, not documents."""
        if split not in self.splits:
            raise UserError(f"{self.spec}: no split {split!r}; there are {', '.join(self.splits)}")
        shard = shard_info or seqio.ShardInfo(index=0, num_shards=1)
        if shard.num_shards > self.most_shards:
            raise UserError(
                f"{self.spec}: {shard.num_shards} shards, but it can be divided into at most "
                f"{self.most_shards}; ask for fewer"
            )
        documents = self.documents(shard.index, shard.num_shards)
        wanted = split == VALIDATION
        return map_documents(
            documents, lambda texts: [t for t in texts if held_out.is_held_out(t) == wanted]
        )


class TextFiles(DocumentSource):
    """Plain or gzipped files: a sentence or paragraph per line, a blank line between documents."""

    def __init__(self, pattern: str, block_bytes: int = 1 << 20):
        self._block_bytes = block_bytes
        self._files = text_files.match_files(pattern)
        sizes = [text_files.text_bytes(file) for file in self._files]
        stats = [(file, *_size_and_time(file)) for file in self._files]
        super().__init__(
            spec=f"text:{pattern}",
            text_bytes=sum(sizes),
            most_shards=sum(math.ceil(size / block_bytes) for size in sizes),
            identity=hashlib.sha256(repr(stats).encode()).hexdigest(),
        )

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        def read(file: bytes, block: np.int64) -> tuple[Any, np.bool_]:
            documents = text_files.read_block(file.decode(), int(block), self._block_bytes)
            return strings(documents or []), np.bool_(documents is not None)

        def file_documents(file: tf.Tensor, first: tf.Tensor, step: tf.Tensor) -> tf.data.Dataset:
            blocks = tf.data.Dataset.range(first, _NO_LIMIT, step)
            read_blocks = blocks.map(lambda block: call(read, [file, block], (tf.string, tf.bool)))
            return (
                read_blocks.take_while(lambda _, inside: tf.ensure_shape(inside, []))
                .map(lambda documents, _: tf.ensure_shape(documents, [None]))
                .unbatch()
            )

        shares = _block_shares(self._files, index, count)
        if not shares:
            return tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
        files, firsts, steps = zip(*shares, strict=True)
        return tf.data.Dataset.from_tensor_slices(
            (list(files), np.array(firsts, np.int64), np.array(steps, np.int64))
        ).flat_map(file_documents)


def _block_shares(files: Sequence[str], index: int, count: int) -> list[tuple[str, int, int]]:
    """Return (file, first block, step) of one shard.

    Shards take the blocks of each file in turn. But gzip cannot be entered in the middle: when
    there are enough gzipped files, each belongs to one shard, which alone has to decompress it.
    """
    whole_files = sum(map(text_files.is_gzip, files)) >= count
    shares = []
    for number, file in enumerate(files):
        if whole_files and text_files.is_gzip(file):
            if number % count == index:
                shares.append((file, 0, 1))
        else:
            shares.append((file, (index - number) % count, count))
    return shares


class Tfds(DocumentSource):
    """A text data set of TFDS that is already prepared on disk; nothing is ever downloaded."""

    def __init__(self, name: str, data_dir: str | None = None):
        dataset, _, config = name.partition("/")
        config = config or layouts.DEFAULT_CONFIGS.get(dataset, "")
        full_name = f"{dataset}/{config}" if config else dataset
        self._builder = find_builder(full_name, data_dir)
        train = self._builder.info.splits[TRAIN]
        self._layout = layouts.LAYOUTS[dataset]
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


class Builtin(DocumentSource):
    """The first documents of the generated corpus of a seed: nothing to download."""

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


# Remembered, since a corpus is read three times: for the vocabulary, to train and to validate.
@functools.lru_cache(maxsize=BUILTIN_DOCUMENTS)
def _builtin_text(seed: int, number: int) -> str:
    sentences = builtin.document(seed, number).sentences
    return "\n".join(sentence.text for sentence in sentences)


def _size_and_time(file: str) -> tuple[int, int]:
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def parse_source(spec: str, seed: int = 0) -> DocumentSource:
    """Return the source that a text like `text:books/*.txt.gz` or `wiki40b/en` names.

    The seed matters to the built-in corpus only.
    """
    kind, _, argument = spec.partition(":")
    if kind == "text" and argument:
        return TextFiles(argument)
    if spec.partition("/")[0] in layouts.LAYOUTS:
        return Tfds(spec)
    if spec == "builtin":
        return Builtin(BUILTIN_DOCUMENTS, seed)
    if kind == "builtin" and argument.isdecimal() and int(argument):
        return Builtin(int(argument), seed)
    raise UserError(
        f"no source {spec!r}; there are builtin, builtin:DOCUMENTS, text:GLOB and, from TFDS, "
        f"{', '.join(layouts.LAYOUTS)}"
    )

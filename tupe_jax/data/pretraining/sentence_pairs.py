"""Sentence pairs for next-sentence prediction, by the rules of BERT's `create_pretraining_data`.

An example is `[CLS] A [SEP] B [SEP]`, where A and B are passages of one or more lines. In half of
the examples B follows A in its document; in the others B begins at a random line of another
document. Together they have as many lines as fit; in one document in ten they are shorter.
A pair that is too long loses tokens of the longer passage, at random from its front or its end.
Lines that a random B displaces are used by the next example. A passage of one line that ends its
document has no successor, so its B is random.

Documents are processed in windows. B comes from the same window or the previous one, so that
memory is bounded. All other randomness is a function of (seed, pass, document).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.builtin.random_stream import Draw, pick, stream
from tupe_jax.data.pretraining.packing import DOCUMENTS, Ids
from tupe_jax.data.pretraining.token_shards import IS_RANDOM_NEXT, SEGMENTS, TOKENS, Features
from tupe_jax.data.tf_utils import call, tf
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SEP_ID

SHORT_SHARE = 0.1
"""The share of documents whose pairs are shorter than a sequence."""
SPECIAL_COUNT = 3
"""[CLS] and two [SEP]."""
# Together with the previous window 1,024 documents: 4 MB of articles, 400 MB of whole books.
WINDOW_DOCUMENTS = 512

Document = Sequence[Ids]
"""The token ids of each line, without [SEP]."""


@dataclass(frozen=True)
class SentencePair:
    """Two passages that fit a sequence."""

    first: Ids
    second: Ids
    is_random_next: bool


def document_pairs(
    document: Document, draw_other: Callable[[], Document], length: int, draw: Draw
) -> Iterator[SentencePair]:
    """Yield the pairs whose first passages are those of a document.

    `draw_other` returns another document.
    """
    room = length - SPECIAL_COUNT
    target = room
    if draw() < SHORT_SHARE:
        target = 2 + int(draw() * (room - 1))  # 2 to room
    start = 0
    while start < len(document):
        end = _end_of_passage(document, start, target)
        middle = start + 1 + int(draw() * (end - start - 1))  # at least one line, and not all
        first = np.concatenate(document[start:middle])
        is_random_next = middle == end or draw() < 0.5
        if is_random_next:
            other = draw_other()
            begin = int(draw() * len(other))
            last = _end_of_passage(other, begin, target - len(first))
            second = np.concatenate(other[begin:last])
        else:
            second = np.concatenate(document[middle:end])
        start = middle if is_random_next else end
        yield SentencePair(*_truncated(first, second, room, draw), is_random_next)


def _end_of_passage(document: Document, start: int, size: int) -> int:
    """Return the end of the shortest passage from `start` with at least `size` tokens."""
    end, tokens = start + 1, len(document[start])
    while end < len(document) and tokens < size:
        tokens += len(document[end])
        end += 1
    return end


def _truncated(first: Ids, second: Ids, room: int, draw: Draw) -> tuple[Ids, Ids]:
    """Remove single tokens of the longer passage (the second if equal) until both fit.

    In closed form: the first keeps half of the room, rounded up, or what the second leaves.
    """
    keep_first = min(len(first), max((room + 1) // 2, room - len(second)))
    keep_second = min(len(second), room - keep_first)

    def cut(passage: Ids, keep: int) -> Ids:
        from_front = sum(draw() < 0.5 for _ in range(len(passage) - keep))
        return passage[from_front : from_front + keep]

    return cut(first, keep_first), cut(second, keep_second)


def window_pairs(
    documents: Sequence[Document],
    previous: Sequence[Document],
    length: int,
    key: Sequence[int],
) -> list[list[SentencePair]]:
    """Return the pairs of each document of a window.

    `previous` are more documents from which random passages are drawn. A document without any other
    has no pairs. `key` is the seed and the number of the pass over the corpus.
    """
    candidates = [*documents, *previous]
    if len(candidates) == 1:
        return [[] for _ in documents]

    def pairs(number: int, document: Document) -> list[SentencePair]:
        content = np.concatenate([np.append(line, SEP_ID) for line in document])
        digest = hashlib.blake2b(content.astype("<i4").tobytes(), digest_size=8).hexdigest()
        draw = stream("sentence pairs", *key, digest)
        others = range(1, len(candidates))

        def draw_other() -> Document:
            return candidates[(number + pick(draw, others)) % len(candidates)]

        return list(document_pairs(document, draw_other, length, draw))

    return [pairs(number, document) for number, document in enumerate(documents)]


def encode_pairs(pairs_of_documents: Sequence[Sequence[SentencePair]], length: int) -> Features:
    """Return the features of pairs, and where documents begin, in the order of the documents."""
    pairs = [pair for some in pairs_of_documents for pair in some]
    tokens_NxS = np.full([len(pairs), length], PAD_ID, np.int32)
    segments_NxS = np.zeros([len(pairs), length], np.int32)
    for tokens_S, segments_S, pair in zip(tokens_NxS, segments_NxS, pairs, strict=True):
        ids = np.concatenate([[CLS_ID], pair.first, [SEP_ID], pair.second, [SEP_ID]])
        tokens_S[: len(ids)] = ids
        segments_S[len(pair.first) + 2 : len(ids)] = 1
    return {
        TOKENS: tokens_NxS,
        SEGMENTS: segments_NxS,
        IS_RANDOM_NEXT: np.array([pair.is_random_next for pair in pairs], np.int32),
        DOCUMENTS: np.array([n == 0 for some in pairs_of_documents for n in range(len(some))], int),
    }


def pack_pairs(key: Sequence[int]) -> Callable[..., tf.data.Dataset]:
    """Return the step from tokenized documents to sentence pairs.

    `key` is the seed and the number of the pass over the corpus.
    """

    def pack(dataset: tf.data.Dataset, sequence_length: Mapping[str, int]) -> tf.data.Dataset:
        length = sequence_length[TOKENS]
        names = (TOKENS, SEGMENTS, IS_RANDOM_NEXT, DOCUMENTS)
        shapes = ([None, length], [None, length], [None], [None])

        def on_arrays(previous_T: Ids, window_T: Ids) -> list[Any]:
            documents, previous = split_documents(window_T), split_documents(previous_T)
            features = encode_pairs(window_pairs(documents, previous, length, key), length)
            return [features[name].astype(np.int32) for name in names]

        def on_tensors(
            previous: tf.Tensor, window: tf.Tensor
        ) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
            features = call(on_arrays, [previous, window], (tf.int32,) * len(names))
            shaped = [tf.ensure_shape(*each) for each in zip(features, shapes, strict=True)]
            return window, dict(zip(names, shaped, strict=True))

        windows = join_documents(dataset, WINDOW_DOCUMENTS)
        return windows.scan(tf.zeros([0], tf.int32), on_tensors).unbatch()

    return pack


def join_documents(dataset: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Return the tokens of up to `count` documents at a time, with [PAD] after each document."""
    ended = dataset.map(lambda example: tf.pad(example[TOKENS], [[0, 1]], constant_values=PAD_ID))
    return ended.ragged_batch(count).map(lambda documents: documents.values)


def split_documents(tokens_T: Ids) -> list[Document]:
    """Return the documents of `join_documents`, without those that have no text."""
    ends_D = np.flatnonzero(tokens_T == PAD_ID)
    documents = (_split_after(tokens, SEP_ID) for tokens in np.split(tokens_T, ends_D + 1))
    return [lines for lines in documents if lines]


def _split_after(tokens_T: Ids, separator: int) -> list[Ids]:
    parts = np.split(tokens_T, np.flatnonzero(tokens_T == separator) + 1)
    lines: list[NDArray[np.int32]] = [part[:-1] for part in parts]
    return [line for line in lines if len(line)]

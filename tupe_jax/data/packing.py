"""From documents to rows of token ids: the last steps of every SeqIO task.

A row is `[CLS]` and then `length - 1` ids of one endless stream in which every line (a sentence or
paragraph) is followed by `[SEP]`, across document borders. A line that does not fit in the rest of
a row goes on in the next one. So every token of the corpus is used once, no row but the last is
padded, and the attention of pre-training needs no padding mask; packing whole lines only would pad
about half a line per row (2 % of 512, 10 % of 128) and would cut lines longer than a row anyway.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.graph import DOCUMENTS_AT_ONCE, call, texts
from tupe_jax.data.tensorflow_on_cpu import tf
from tupe_jax.data.vocabulary import CLS_ID, PAD_ID, SEP_ID, Vocabulary

TOKENS = "tokens"
# How many documents begin in a row: lets `tupe prepare` count them.
DOCUMENTS = "documents"

# Rows are cut many at a time, since tf.data has a cost per element.
_ROWS_AT_ONCE = 256


def tokenize(vocabulary: Vocabulary) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Return the step from a document's text to its ids, `[SEP]` after every line.

    This calls the SentencePiece library and not SeqIO's `encode_tf`: the same ids, but 1.5
    times as fast for documents of many short lines.
    """

    def encode(documents: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        ids: list[int] = []
        ends = [0]
        for document in texts(documents):
            for line in vocabulary.encode_lines(document.split("\n")):
                ids += line
                ids.append(SEP_ID)
            ends.append(len(ids))
        return np.array(ids, np.int32), np.array(ends, np.int64)

    def examples(documents: tf.Tensor) -> Mapping[str, tf.Tensor]:
        ids, ends = call(encode, [documents], (tf.int32, tf.int64))
        ids, ends = tf.ensure_shape(ids, [None]), tf.ensure_shape(ends, [None])
        return {TOKENS: tf.RaggedTensor.from_row_splits(ids, ends)}

    return lambda documents: documents.batch(DOCUMENTS_AT_ONCE).map(examples).unbatch()


def pack(dataset: tf.data.Dataset, sequence_length: Mapping[str, int]) -> tf.data.Dataset:
    """Cut the stream of all documents' ids into rows of `sequence_length["tokens"]`."""
    length = sequence_length[TOKENS]
    body = length - 1

    def with_begin(example: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        tokens = example[TOKENS]
        return {TOKENS: tokens, DOCUMENTS: tf.one_hot(0, tf.size(tokens), dtype=tf.int32)}

    def cut(stream: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        missing = -tf.size(stream[TOKENS]) % body
        tokens = tf.pad(stream[TOKENS], [[0, missing]], constant_values=PAD_ID)
        begins = tf.pad(stream[DOCUMENTS], [[0, missing]])
        rows = tf.pad(tf.reshape(tokens, [-1, body]), [[0, 0], [1, 0]], constant_values=CLS_ID)
        return {
            TOKENS: tf.ensure_shape(rows, [None, length]),
            DOCUMENTS: tf.reduce_sum(tf.reshape(begins, [-1, body]), axis=1),
        }

    return dataset.map(with_begin).rebatch(_ROWS_AT_ONCE * body).map(cut).unbatch()

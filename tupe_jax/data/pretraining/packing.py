"""Packing: from documents to sequences of token ids, the last steps of every SeqIO task.

All documents form one stream of lines (sentences or paragraphs), each followed by `[SEP]`. A
sequence is `[CLS]` and up to `length - 1` tokens of that stream. Both ways to pack it use every
token once and keep the order:

stream       Every `length - 1` tokens are a sequence, so lines are split across sequences. Only the
             last sequence is padded.
sentences    A sequence holds as many whole lines as fit, then padding: about half a line per
             sequence (2 % of 512 tokens, 10 % of 128). The data of the TUPE paper is packed this
             way. A line of more than `length - 1` tokens is cut into chunks of `length - 1` tokens,
             and each chunk counts as a line.

The third packing, into pairs of passages, is in `sentence_pairs.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.pretraining.token_shards import TOKENS
from tupe_jax.data.tf_utils import DOCUMENTS_AT_ONCE, call, texts, tf
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SEP_ID, SentencePieceTokenizer

# The number of documents that begin in a sequence, for the statistics of `tupe prepare`.
DOCUMENTS = "documents"

# Many sequences are cut at a time, since tf.data has a cost per element.
_SEQUENCES_AT_ONCE = 256

Ids = NDArray[np.int32]


def tokenize(tokenizer: SentencePieceTokenizer) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Return the step from a document to its token ids, with `[SEP]` after every line.

    It calls the SentencePiece library, not SeqIO's `encode_tf`. The ids are the same, and it is
    1.5 times as fast for documents of many short lines.
    """

    def encode(documents: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        ids: list[int] = []
        ends = [0]
        for document in texts(documents):
            for line in tokenizer.encode_lines(document.split("\n")):
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
    """Cut the token stream of all documents into sequences of `sequence_length["tokens"]`."""
    length = sequence_length[TOKENS]
    body = length - 1

    def cut(stream: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        missing = -tf.size(stream[TOKENS]) % body
        tokens = tf.pad(stream[TOKENS], [[0, missing]], constant_values=PAD_ID)
        begins = tf.pad(stream[DOCUMENTS], [[0, missing]])
        bodies = tf.reshape(tokens, [-1, body])
        sequences = tf.pad(bodies, [[0, 0], [1, 0]], constant_values=CLS_ID)
        return {
            TOKENS: tf.ensure_shape(sequences, [None, length]),
            DOCUMENTS: tf.reduce_sum(tf.reshape(begins, [-1, body]), axis=1),
        }

    return _stream(dataset, _SEQUENCES_AT_ONCE * body).map(cut).unbatch()


def pack_sentences(dataset: tf.data.Dataset, sequence_length: Mapping[str, int]) -> tf.data.Dataset:
    """Pack whole lines of all documents into sequences of `sequence_length["tokens"]`."""
    length = sequence_length[TOKENS]

    def on_arrays(tokens_T: Ids, begins_T: Ids, is_last: np.bool_) -> tuple[Ids, Ids, Ids, Ids]:
        ends_N = sequence_ends(tokens_T, length)
        if not is_last:
            ends_N = ends_N[:-1]  # lines of the next part of the stream may still fit
        used = int(ends_N[-1]) if len(ends_N) else 0
        documents_N = _sums(begins_T[:used], ends_N)
        tokens_NxS = pad_sequences(tokens_T[:used], ends_N, length)
        return tokens_NxS, documents_N, tokens_T[used:], begins_T[used:]

    def on_tensors(
        rest: tuple[tf.Tensor, tf.Tensor], part: tuple[Mapping[str, tf.Tensor], tf.Tensor]
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Mapping[str, tf.Tensor]]:
        stream, is_last = part
        tokens = tf.concat([rest[0], stream[TOKENS]], axis=0)
        begins = tf.concat([rest[1], stream[DOCUMENTS]], axis=0)
        types = (tf.int32, tf.int32, tf.int32, tf.int32)
        sequences, documents, *rest_after = call(on_arrays, [tokens, begins, is_last], types)
        tokens_left, begins_left = (tf.ensure_shape(each, [None]) for each in rest_after)
        return (tokens_left, begins_left), {
            TOKENS: tf.ensure_shape(sequences, [None, length]),
            DOCUMENTS: tf.ensure_shape(documents, [None]),
        }

    nothing = tf.zeros([0], tf.int32)
    end = tf.data.Dataset.from_tensors(({TOKENS: nothing, DOCUMENTS: nothing}, True))
    parts = _stream(dataset, _SEQUENCES_AT_ONCE * length).map(lambda stream: (stream, False))
    return parts.concatenate(end).scan((nothing, nothing), on_tensors).unbatch()


def sequence_ends(tokens_T: Ids, length: int) -> NDArray[np.int64]:
    """Return where sequences of whole lines end in a stream, with as many lines each as fit.

    Tokens after the last [SEP] are not in any sequence.
    """
    body = length - 1
    ends_C = _cut_long_lines(np.flatnonzero(tokens_T == SEP_ID) + 1, body)
    starts_C = np.concatenate([[0], ends_C])[:-1]
    # For each chunk: the chunk that starts the next sequence, if this one starts a sequence.
    next_start_C = np.searchsorted(ends_C, starts_C + body, side="right").tolist()
    chunk, last_chunks = 0, []
    while chunk < len(ends_C):
        chunk = next_start_C[chunk]
        last_chunks.append(chunk - 1)
    return ends_C[np.array(last_chunks, np.int64)]


def _cut_long_lines(line_ends_N: NDArray[np.int64], body: int) -> NDArray[np.int64]:
    """Return the ends of the chunks of all lines. A line of up to `body` tokens is one chunk."""
    starts_N = np.concatenate([[0], line_ends_N])[:-1]
    chunks_N = -(-(line_ends_N - starts_N) // body)
    first_chunk_N = np.cumsum(chunks_N) - chunks_N
    number_in_line_C = np.arange(chunks_N.sum()) - np.repeat(first_chunk_N, chunks_N)
    full_ends_C = np.repeat(starts_N, chunks_N) + (number_in_line_C + 1) * body
    ends_C: NDArray[np.int64] = np.minimum(full_ends_C, np.repeat(line_ends_N, chunks_N))
    return ends_C


def pad_sequences(tokens_T: Ids, ends_N: NDArray[np.int64], length: int) -> Ids:
    """Return the sequences that end at these positions of a stream: [CLS], tokens, padding."""
    tokens_NxS = np.full([len(ends_N), length], PAD_ID, np.int32)
    tokens_NxS[:, 0] = CLS_ID
    sizes_Nx1 = np.diff(ends_N, prepend=0)[:, None]
    tokens_NxS[:, 1:][np.arange(length - 1) < sizes_Nx1] = tokens_T
    return tokens_NxS


def _sums(values_T: Ids, ends_N: NDArray[np.int64]) -> Ids:
    """Return the sum of each section of an array. A section ends at one of these positions."""
    totals = np.concatenate([[0], np.cumsum(values_T)])[ends_N]
    return np.diff(totals, prepend=0).astype(np.int32)


def _stream(dataset: tf.data.Dataset, size: int) -> tf.data.Dataset:
    """Return the token stream in parts of `size`, with a 1 where a document begins."""

    def with_begin(example: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        tokens = example[TOKENS]
        return {TOKENS: tokens, DOCUMENTS: tf.one_hot(0, tf.size(tokens), dtype=tf.int32)}

    return dataset.map(with_begin).rebatch(size)

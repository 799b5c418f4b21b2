"""The validation split of a prepared folder, collected from what the shards held out.

It is that of a single shard with all documents. It is made in parts, so memory does not depend on
the size of the corpus.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import Packing
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.packing import DOCUMENTS, Ids, pad_sequences, sequence_ends
from tupe_jax.data.pretraining.sentence_pairs import (
    WINDOW_DOCUMENTS,
    Document,
    encode_pairs,
    split_documents,
    window_pairs,
)
from tupe_jax.data.pretraining.token_shards import TOKENS, Features
from tupe_jax.tokenizers.sentencepiece import PAD_ID

Sequences = NDArray[np.int32]


def validation_features(held_out: Iterable[Ids], config: PrepareConfig) -> Iterator[Features]:
    """Yield the examples of the held-out documents of all shards, many at a time."""
    if config.packing == "pairs":
        documents = chain.from_iterable(map(split_documents, held_out))
        return _pairs(documents, config.length, (config.seed, 0))
    return ({TOKENS: part} for part in repack(held_out, config.packing, config.length))


def repack(shards: Iterable[Sequences], packing: Packing, length: int) -> Iterator[Sequences]:
    """Pack the sequences of several shards as if they came from one stream, in parts."""
    rest_T = np.zeros([0], np.int32)
    for tokens_NxS in shards:
        body = tokens_NxS[:, 1:]
        stream_T = np.concatenate([rest_T, body[body != PAD_ID]])
        # Tokens of the next shard may still fit in the last sequence.
        ends_N = _sequence_ends(stream_T, packing, length)[:-1]
        used = int(ends_N[-1]) if len(ends_N) else 0
        yield pad_sequences(stream_T[:used], ends_N, length)
        rest_T = stream_T[used:]
    yield pad_sequences(rest_T, _sequence_ends(rest_T, packing, length), length)


def _sequence_ends(stream_T: Ids, packing: Packing, length: int) -> NDArray[np.int64]:
    if packing == "sentences":
        return sequence_ends(stream_T, length)
    body = length - 1
    return np.minimum(np.arange(body, len(stream_T) + body, body), len(stream_T))


def _pairs(documents: Iterator[Document], length: int, key: Sequence[int]) -> Iterator[Features]:
    previous: list[Document] = []
    while window := list(islice(documents, WINDOW_DOCUMENTS)):
        features = encode_pairs(window_pairs(window, previous, length, key), length)
        del features[DOCUMENTS]
        yield features
        previous = window

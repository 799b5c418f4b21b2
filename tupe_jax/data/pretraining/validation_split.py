"""The validation split of a prepared folder, collected from what the shards held out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import Packing
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.packing import DOCUMENTS, Ids, pad_sequences, sequence_ends
from tupe_jax.data.pretraining.sentence_pairs import (
    WINDOW_DOCUMENTS,
    Document,
    SentencePair,
    encode_pairs,
    split_documents,
    window_pairs,
)
from tupe_jax.data.pretraining.token_shards import TOKENS, Features
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID

Sequences = NDArray[np.int32]


def validation_features(held_out: Sequence[Ids], config: PrepareConfig) -> Features:
    """Return the examples of the held-out documents of all shards, as if of one shard."""
    if config.packing != "pairs":
        return {TOKENS: repack(np.concatenate(held_out), config.packing)}
    documents = split_documents(np.concatenate(held_out))
    if len(documents) < 2:
        documents = []  # no other document for random passages
    pairs: list[list[SentencePair]] = []
    previous: list[Document] = []
    for start in range(0, len(documents), WINDOW_DOCUMENTS):
        window = documents[start : start + WINDOW_DOCUMENTS]
        pairs += window_pairs(window, previous, config.length, (config.seed, 0))
        previous = window
    features = encode_pairs(pairs, config.length)
    del features[DOCUMENTS]
    return features


def repack(tokens_NxS: Sequences, packing: Packing) -> Sequences:
    """Pack the sequences of several shards as if they came from one stream."""
    length = tokens_NxS.shape[1]
    body = tokens_NxS[:, 1:]
    stream = body[body != PAD_ID]
    if packing == "sentences":
        return pad_sequences(stream, sequence_ends(stream, length), length)
    padded = np.pad(stream, (0, -len(stream) % (length - 1)), constant_values=PAD_ID)
    return np.pad(padded.reshape(-1, length - 1), ((0, 0), (1, 0)), constant_values=CLS_ID)

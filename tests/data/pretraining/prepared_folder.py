"""Read what `tupe prepare` has written."""

from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from tupe_jax.data.pretraining import token_shards
from tupe_jax.tokenizers.sentencepiece import PAD_ID, SEP_ID, SentencePieceTokenizer


def read_examples(folder: Path, split: str) -> token_shards.Features:
    index = token_shards.read_index(folder)
    records = []
    for shard in index.splits[split].shards:
        reader = ArrayRecordReader(str(folder / shard.file))
        assert reader.num_records() == shard.rows
        records += reader.read_all()
    return token_shards.decode_records(records, index.record)


def read_sequences(folder: Path, split: str) -> np.ndarray:
    return read_examples(folder, split)["tokens"]


def lines_of(tokens_NxS: np.ndarray, tokenizer: SentencePieceTokenizer) -> list[str]:
    body = tokens_NxS[:, 1:]
    stream = body[body != PAD_ID]
    ends = np.flatnonzero(stream == SEP_ID) + 1
    assert ends[-1] == len(stream)
    return [tokenizer.decode(line.tolist()) for line in np.split(stream, ends[:-1])]

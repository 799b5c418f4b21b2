"""Read what `tupe prepare` has written."""

from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from tupe_jax.data.pretraining import token_shards as rows
from tupe_jax.tokenizers.sentencepiece import PAD_ID, SEP_ID, SentencePieceTokenizer


def read_rows(folder: Path, split: str) -> np.ndarray:
    index = rows.read_index(folder)
    records = []
    for shard in index.splits[split].shards:
        reader = ArrayRecordReader(str(folder / shard.file))
        assert reader.num_records() == shard.rows
        records += reader.read_all()
    return rows.decode_rows(records, index.dtype, index.length)


def lines_of(rows_NxL: np.ndarray, vocabulary: SentencePieceTokenizer) -> list[str]:
    body = rows_NxL[:, 1:]
    stream = body[body != PAD_ID]
    ends = np.flatnonzero(stream == SEP_ID) + 1
    assert ends[-1] == len(stream)
    return [vocabulary.decode(line.tolist()) for line in np.split(stream, ends[:-1])]

"""The token ids of the official code: our tokens in its numbering, and back.

Ours are [PAD], [CLS], [SEP], [MASK], [UNK], then all other tokens. The official code has <s>,
<pad>, </s>, <unk>, <file>, <email>, <url>, then the lines of `dict.txt`, and <mask> as the last
one. We have no <file>, <email> and <url>: they get the embedding of [UNK], and an output bias so
low that their probability is 0.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tupe_jax.interop.fairseq import EMBEDDING, OUTPUT_BIAS, OUTPUT_MATRIX
from tupe_jax.interop.param_mapping import check_shape
from tupe_jax.model.params import Array
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.sentencepiece import (
    CLS_ID,
    MASK_ID,
    PAD_ID,
    SEP_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    SentencePieceTokenizer,
)
from tupe_jax.utils.errors import UserError

BY_TOKEN = (EMBEDDING, OUTPUT_MATRIX, OUTPUT_BIAS)
"""The arrays with a row for each token."""
FIRST_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>")
LAST_SYMBOL = "<mask>"
OFFICIAL_PAD_ID = FIRST_SYMBOLS.index("<pad>")
ADDED_IDS = tuple(map(FIRST_SYMBOLS.index, ("<file>", "<email>", "<url>")))
ADDED_BIAS = -1e4
"""Its exponential is 0 in float32, and float16 can hold it."""


def official_ids(vocab_size: int) -> NDArray[np.int64]:
    """The official id of each of our tokens."""
    ids_V = np.arange(vocab_size) + len(FIRST_SYMBOLS) - len(SPECIAL_TOKENS)
    ids_V[[CLS_ID, PAD_ID, SEP_ID, UNK_ID]] = [
        FIRST_SYMBOLS.index(symbol) for symbol in ("<s>", "<pad>", "</s>", "<unk>")
    ]
    ids_V[MASK_ID] = vocab_size + len(ADDED_IDS) - 1
    return ids_V


def to_official(state: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays under the released names, from our numbering to the official one."""
    ids_V = official_ids(len(state[EMBEDDING]))

    def renumbered(array: Array) -> Array:
        theirs = np.repeat(array[UNK_ID : UNK_ID + 1], len(array) + len(ADDED_IDS), axis=0)
        theirs[ids_V] = array
        return theirs

    by_token = {name: renumbered(state[name]) for name in BY_TOKEN}
    by_token[OUTPUT_BIAS][list(ADDED_IDS)] = ADDED_BIAS
    return {**state, **by_token}


def from_official(state: Mapping[str, Array]) -> dict[str, Array]:
    """What `to_official` was given; the tokens that only the official code has are dropped."""
    rows = len(state[EMBEDDING])
    ids_V = official_ids(rows - len(ADDED_IDS))
    by_token = {name: state[name] for name in BY_TOKEN if name in state}
    for name, array in by_token.items():
        check_shape(name, array, (rows, *array.shape[1:]))
    return {**state, **{name: array[ids_V] for name, array in by_token.items()}}


def has_official_ids(state: Mapping[str, Array], pad_id: int, tokenizer: Tokenizer) -> bool:
    """Whether the arrays are those of the tokenizer's tokens after `to_official`."""
    embedding = state.get(EMBEDDING)
    return (
        isinstance(tokenizer, SentencePieceTokenizer)
        and pad_id == OFFICIAL_PAD_ID
        and embedding is not None
        and embedding.shape[:1] == (tokenizer.size + len(ADDED_IDS),)
    )


def dictionary_lines(tokenizer: Tokenizer) -> str:
    """The content of `dict.txt`: a token and a count in each line. Counts are unknown, so all 1."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        raise UserError(
            f"{tokenizer.path}: the official format takes the tokens of a SentencePiece model, not "
            "those of an imported tokenizer; export without --format=fairseq"
        )
    tokens = [tokenizer.token(int(i)) for i in tokenizer.ordinary_ids]
    for token in tokens:
        if token in (*FIRST_SYMBOLS, LAST_SYMBOL) or "\n" in token or "\r" in token:
            raise UserError(
                f"{tokenizer.path}: the official format cannot hold the token {token!r}; export "
                "without --format=fairseq"
            )
    return "".join(f"{token} 1\n" for token in tokens)

"""What a trained model puts in place of [MASK]."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.config import ModelConfig
from tupe_jax.data.tokenizer_vocabulary import AnyVocabulary
from tupe_jax.data.vocabulary import MASK_ID, SPECIAL_PIECES
from tupe_jax.errors import UserError
from tupe_jax.model.heads import MaskedLM

MASK = SPECIAL_PIECES[MASK_ID]
# Sentences are padded to a multiple of this, so that few lengths are ever compiled.
_LENGTH_STEP = 32


@dataclass(frozen=True)
class Guess:
    """A piece for a masked place, with its probability among all ordinary pieces."""

    piece: str
    probability: float


def fill_masks(
    model: MaskedLM, vocabulary: AnyVocabulary, sentences: Sequence[str], top_k: int = 5
) -> list[list[list[Guess]]]:
    """For each sentence and each [MASK] in it, the `top_k` likeliest pieces, best first."""
    if vocabulary.size > model.config.vocab_size:
        raise UserError(
            f"the vocabulary has {vocabulary.size} pieces but the model "
            f"{model.config.vocab_size}; give the vocabulary the model was trained with"
        )
    if not sentences:
        return []
    tokens_BxS, masks = _batch(
        [encode_masked(vocabulary, text) for text in sentences],
        model.config,
        vocabulary.special.mask_id,
    )
    widest = max(len(places) for places in masks)
    positions_BxM = np.stack([np.resize(places, widest) for places in masks])
    # A model may have more rows than there are pieces, to be divisible by the devices of a mesh.
    ordinary_V = np.zeros(model.config.vocab_size, bool)
    ordinary_V[vocabulary.ordinary_ids] = True
    graph, state = nnx.split(model)
    k = min(top_k, int(ordinary_V.sum()))
    probabilities, pieces = jax.device_get(
        _likeliest(graph, state, tokens_BxS, positions_BxM, ordinary_V, k)
    )
    return [
        [
            [
                Guess(vocabulary.decode([piece]), float(probability))
                for piece, probability in zip(pieces[b, m], probabilities[b, m], strict=True)
            ]
            for m in range(len(places))
        ]
        for b, places in enumerate(masks)
    ]


def encode_masked(vocabulary: AnyVocabulary, text: str) -> list[int]:
    """[CLS] text [SEP] as ids, where each "[MASK]" stands for one piece."""
    # A mask takes the space before it, like a word; to byte-level pieces that would be one.
    first, *others = (part.rstrip() for part in text.split(MASK))
    if not others:
        raise UserError(f"no {MASK} in {text!r}; write {MASK} for each piece to be guessed")
    ids = vocabulary.encode(first)
    for part in others:
        ids += [vocabulary.special.mask_id, *_encode_after_word(vocabulary, part)]
    return [vocabulary.special.cls_id, *ids, vocabulary.special.sep_id]


def _encode_after_word(vocabulary: AnyVocabulary, part: str) -> list[int]:
    """The ids of text that follows a word.

    SentencePiece begins every text with a space. Before the full stop in "[MASK]." that would be
    one the model has never seen there, so such a text is encoded after a letter.
    """
    if not part or part[0].isspace():
        return vocabulary.encode(part)
    letter, both = vocabulary.encode("a"), vocabulary.encode(f"a{part}")
    merged = both[: len(letter)] != letter
    return vocabulary.encode(part) if merged else both[len(letter) :]


def _batch(
    rows: Sequence[list[int]], config: ModelConfig, mask_id: int
) -> tuple[NDArray[np.int32], list[NDArray[np.intp]]]:
    """The rows padded to one length, and the places of their masks."""
    longest = max(map(len, rows))
    rounded = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
    # Not beyond the table of positions for the sake of padding.
    length = max(longest, min(rounded, config.position.max_length))
    tokens_BxS = np.full((len(rows), length), config.pad_id, np.int32)
    for row, ids in zip(tokens_BxS, rows, strict=True):
        row[: len(ids)] = ids
    return tokens_BxS, [np.flatnonzero(row == mask_id) for row in tokens_BxS]


@partial(jax.jit, static_argnums=(0, 5))
def _likeliest(
    graph: Any,
    state: Any,
    tokens_BxS: jax.Array,
    positions_BxM: jax.Array,
    ordinary_V: jax.Array,
    top_k: int,
) -> tuple[jax.Array, jax.Array]:
    """Probabilities and ids of the likeliest ordinary pieces, [B, M, k] each."""
    logits_BxMxV = nnx.merge(graph, state)(tokens_BxS, positions_BxM=positions_BxM)
    probability = jax.nn.softmax(jnp.where(ordinary_V, logits_BxMxV, -jnp.inf))
    top, ids = jax.lax.top_k(probability, top_k)
    return top, ids

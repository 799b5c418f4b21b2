"""Fill masks, and score texts by their pseudo-log-likelihood."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.config.validation import whole_number
from tupe_jax.inference.batching import (
    MASK,
    TokenIds,
    batches,
    describe,
    text_positions,
    to_sequences,
)
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.positions import longest_input
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError


@dataclass(frozen=True)
class Guess:
    """A token for a mask, with its probability among all tokens that are not special."""

    piece: str
    probability: float
    id: int
    starts_word: bool
    """False if the token continues the previous word; punctuation counts as a start."""

    def __str__(self) -> str:
        """A token that continues a word is shown as in BERT: ##ing."""
        return f"{'' if self.starts_word else '##'}{self.piece} {self.probability:.0%}"


@dataclass(frozen=True, repr=False)
class Filled:
    """A text and, for each [MASK] in it, the most likely tokens, best first."""

    text: str
    guesses: tuple[tuple[Guess, ...], ...]
    filled: str
    """The tokenized text with the best token at each [MASK]; each is chosen independently."""

    def __repr__(self) -> str:
        return f"{self.text!r}: {' | '.join(', '.join(map(str, mask)) for mask in self.guesses)}"


def fill_masks(
    model: MaskedLM, tokenizer: Tokenizer, texts: Sequence[str], top_k: int = 5
) -> list[Filled]:
    """The `top_k` most likely tokens for each [MASK] of each text."""
    if tokenizer.size > model.config.vocab_size:
        raise UserError(
            f"the tokenizer has {tokenizer.size} tokens, but the model has "
            f"{model.config.vocab_size}; use the tokenizer that the model was trained with"
        )
    top_k = whole_number(top_k, "top_k")
    if top_k < 1:
        raise UserError(f"top_k={top_k} must be at least 1")
    for number, text in enumerate(texts, 1):
        if MASK not in text:
            raise UserError(
                f"{describe(text, number, len(texts))} has no {MASK}; write {MASK} for each token "
                "to fill in"
            )
    mask_id = tokenizer.special.mask_id
    ids = [encode_masked(tokenizer, text) for text in texts]
    sequences = to_sequences(tokenizer, ids, texts, longest_input(model.config))
    # Each [MASK] is one query, with a copy of its sequence.
    masks = [np.flatnonzero(sequence == mask_id) for sequence in sequences]
    queries = [s for s, positions in zip(sequences, masks, strict=True) for _ in positions]
    position_Q = np.concatenate([*masks, np.array([], np.intp)])
    guesses: list[tuple[Guess, ...]] = [()] * len(queries)
    for indices, log_probability_BxV in log_probabilities(model, queries, position_Q):
        for q, log_probability_V in zip(indices, log_probability_BxV, strict=True):
            after_word = _after_word(tokenizer, queries[q], position_Q[q])
            guesses[q] = _most_likely(tokenizer, log_probability_V, top_k, after_word)
    in_order = iter(guesses)
    return [
        _filled(tokenizer, text, sequence, tuple(next(in_order) for _ in positions))
        for text, sequence, positions in zip(texts, sequences, masks, strict=True)
    ]


def pseudo_log_likelihoods(
    model: MaskedLM, sequences: Sequence[TokenIds], mask_id: int
) -> NDArray[np.float64]:
    """The pseudo-log-likelihood of each sequence in nats, summed over the tokens of its text.

    A masked language model defines no likelihood of a sentence. The pseudo-log-likelihood (Wang
    and Cho, 2019; Salazar et al., 2020) masks one token at a time and sums the log-probabilities
    of the masked tokens.
    """
    # Each token of each text is one query: the index of its sequence, and the masked position.
    queries = [
        (n, position)
        for n, sequence in enumerate(sequences)
        for position in text_positions(sequence, model.config)
    ]
    sequence_Q, position_Q = np.array(queries, np.intp).reshape(-1, 2).T
    target_Q = np.array([sequences[n][position] for n, position in queries])
    masked = [_with_mask(sequences[n], position, mask_id) for n, position in queries]
    total_N = np.zeros(len(sequences))
    for indices, log_probability_BxV in log_probabilities(model, masked, position_Q):
        scores_B = log_probability_BxV[np.arange(len(indices)), target_Q[indices]]
        np.add.at(total_N, sequence_Q[indices], scores_B)
    return total_N


def log_probabilities(
    model: MaskedLM, sequences: Sequence[TokenIds], position_N: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Batches of the log-probabilities of all tokens at a position of each sequence, [B, V].

    Each batch comes with the indices of its sequences.
    """
    graph, state = nnx.split(model)
    for tokens_BxS, indices in batches(sequences, model.config):
        position_B = np.resize(position_N[indices], len(tokens_BxS))
        log_probability_BxV = _log_probability(graph, state, tokens_BxS, position_B)
        yield indices, np.asarray(log_probability_BxV)[: len(indices)]


@partial(jax.jit, static_argnums=0)
def _log_probability(
    graph: Any, state: Any, tokens_BxS: jax.Array, position_B: jax.Array
) -> jax.Array:
    logits_BxV = nnx.merge(graph, state)(tokens_BxS, positions_BxM=position_B[:, None])[:, 0]
    return jax.nn.log_softmax(logits_BxV)


def _with_mask(sequence: TokenIds, position: int, mask_id: int) -> TokenIds:
    masked = sequence.copy()
    masked[position] = mask_id
    return masked


def _most_likely(
    tokenizer: Tokenizer,
    log_probability_V: NDArray[np.float32],
    top_k: int,
    after_word: bool,
) -> tuple[Guess, ...]:
    """The best tokens that are not special; a model may have more outputs than tokens."""
    ordinary_O = tokenizer.ordinary_ids
    probability_O = np.exp(log_probability_V[ordinary_O].astype(np.float64))
    probability_O /= probability_O.sum()
    best = np.argsort(-probability_O, kind="stable")[:top_k]
    return tuple(
        _guess(tokenizer, token, float(probability), after_word)
        for token, probability in zip(ordinary_O[best].tolist(), probability_O[best], strict=True)
    )


def _guess(tokenizer: Tokenizer, token: int, probability: float, after_word: bool) -> Guess:
    text = tokenizer.decode([token])
    is_punctuation = not text[:1].isalnum()
    is_unmarked_start = not tokenizer.marks_every_word and not after_word
    starts_word = tokenizer.starts_word(token) or is_punctuation or is_unmarked_start
    return Guess(text, probability, token, starts_word)


def _after_word(tokenizer: Tokenizer, sequence: TokenIds, position: int) -> bool:
    """Whether a token at this position could continue a word."""
    previous = sequence[position - 1] if position else tokenizer.special.cls_id
    is_mask = previous == tokenizer.special.mask_id
    return bool(is_mask or tokenizer.decode([previous])[-1:].isalnum())


def _filled(
    tokenizer: Tokenizer, text: str, sequence: TokenIds, guesses: tuple[tuple[Guess, ...], ...]
) -> Filled:
    ids = sequence.copy()
    ids[sequence == tokenizer.special.mask_id] = [mask[0].id for mask in guesses]
    return Filled(text, guesses, tokenizer.decode(ids))


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text in which each "[MASK]" stands for one token."""
    # A mask includes the space before it; in byte-level BPE that space would be a token.
    first, *others = (part.rstrip() for part in text.split(MASK))
    ids = tokenizer.encode(first)
    for part in others:
        ids += [tokenizer.special.mask_id, *_encode_after_word(tokenizer, part)]
    return ids


def _encode_after_word(tokenizer: Tokenizer, part: str) -> list[int]:
    """The ids of text that follows a mask.

    SentencePiece starts every text with a space. In "[MASK]." there is none before the full stop,
    so text that does not start with a space is encoded after a letter.
    """
    if not part or part[0].isspace():
        return tokenizer.encode(part)
    letter, both = tokenizer.encode("a"), tokenizer.encode(f"a{part}")
    merged = both[: len(letter)] != letter
    return tokenizer.encode(part) if merged else both[len(letter) :]

"""What a trained model puts in place of [MASK], and how likely it finds a sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.config.validation import whole_number
from tupe_jax.inference.batching import MASK, Row, as_rows, batches, named, places_of_text
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.positions import longest_input
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError


@dataclass(frozen=True)
class Guess:
    """A piece for a masked place, with its probability among all ordinary pieces."""

    piece: str
    probability: float
    id: int
    starts_word: bool
    """Or is a mark; else it goes on with the word before it."""

    def __str__(self) -> str:
        """With BERT's mark of a piece that goes on with a word: ##ing."""
        return f"{'' if self.starts_word else '##'}{self.piece} {self.probability:.0%}"


@dataclass(frozen=True, repr=False)
class Filled:
    """A text and, for each [MASK] in it, the likeliest pieces, best first."""

    text: str
    guesses: tuple[tuple[Guess, ...], ...]
    filled: str
    """The text as the model reads it, the best piece at each [MASK]; each was guessed alone."""

    def __repr__(self) -> str:
        return f"{self.text!r}: {' | '.join(', '.join(map(str, mask)) for mask in self.guesses)}"


def fill_masks(
    model: MaskedLM, vocabulary: Tokenizer, texts: Sequence[str], top_k: int = 5
) -> list[Filled]:
    """The `top_k` likeliest pieces for each [MASK] of each text."""
    if vocabulary.size > model.config.vocab_size:
        raise UserError(
            f"the vocabulary has {vocabulary.size} pieces but the model "
            f"{model.config.vocab_size}; give the vocabulary the model was trained with"
        )
    top_k = whole_number(top_k, "top_k")
    if top_k < 1:
        raise UserError(f"top_k={top_k} must be at least 1")
    for number, text in enumerate(texts, 1):
        if MASK not in text:
            raise UserError(
                f"{named(text, number, len(texts))} has no {MASK}; write {MASK} for each piece to "
                "be guessed"
            )
    longest = longest_input(model.config)
    mask_id = vocabulary.special.mask_id
    rows = as_rows(vocabulary, [encode_masked(vocabulary, text) for text in texts], texts, longest)
    # One line for each [MASK] of each row.
    masks = [np.flatnonzero(row == mask_id) for row in rows]
    repeated = [row for row, places in zip(rows, masks, strict=True) for _ in places]
    place_M = np.concatenate([*masks, np.array([], np.intp)])
    guesses: list[tuple[Guess, ...]] = [()] * len(repeated)
    for lines, log_probability_LxV in log_probabilities(model, repeated, place_M):
        for line, log_probability_V in zip(lines, log_probability_LxV, strict=True):
            after_word = _after_word(vocabulary, repeated[line], place_M[line])
            guesses[line] = _likeliest(vocabulary, log_probability_V, top_k, after_word)
    in_order = iter(guesses)
    return [
        _filled(vocabulary, text, row, tuple(next(in_order) for _ in places))
        for text, row, places in zip(texts, rows, masks, strict=True)
    ]


def pseudo_log_likelihoods(
    model: MaskedLM, rows: Sequence[Row], mask_id: int
) -> NDArray[np.float64]:
    """Of each row: the sum over its text's pieces, in nats.

    A masked language model has no likelihood of a sentence. The pseudo-log-likelihood (Wang and
    Cho, 2019; Salazar et al., 2020) hides one piece at a time and sums the logarithms of the
    probabilities of the hidden ones.
    """
    # One line for each piece of each row: whose it is, and the place that is hidden.
    lines_of = [
        (n, place) for n, row in enumerate(rows) for place in places_of_text(row, model.config)
    ]
    owner_M, place_M = np.array(lines_of, np.intp).reshape(-1, 2).T
    hidden_M = np.array([rows[n][place] for n, place in lines_of])
    masked = [_with_mask(rows[n], place, mask_id) for n, place in lines_of]
    total_N = np.zeros(len(rows))
    for lines, log_probability_LxV in log_probabilities(model, masked, place_M):
        scores_L = log_probability_LxV[np.arange(len(lines)), hidden_M[lines]]
        np.add.at(total_N, owner_M[lines], scores_L)
    return total_N


def log_probabilities(
    model: MaskedLM, rows: Sequence[Row], place_N: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Which rows, and the logarithms of the probabilities of all pieces at their places, [L, V]."""
    graph, state = nnx.split(model)
    for tokens_BxS, lines in batches(rows, model.config):
        place_B = np.resize(place_N[lines], len(tokens_BxS))
        log_probability_BxV = _log_probability(graph, state, tokens_BxS, place_B)
        yield lines, np.asarray(log_probability_BxV)[: len(lines)]


@partial(jax.jit, static_argnums=0)
def _log_probability(
    graph: Any, state: Any, tokens_BxS: jax.Array, place_B: jax.Array
) -> jax.Array:
    logits_BxV = nnx.merge(graph, state)(tokens_BxS, positions_BxM=place_B[:, None])[:, 0]
    return jax.nn.log_softmax(logits_BxV)


def _with_mask(row: Row, place: int, mask_id: int) -> Row:
    masked = row.copy()
    masked[place] = mask_id
    return masked


def _likeliest(
    vocabulary: Tokenizer,
    log_probability_V: NDArray[np.float32],
    top_k: int,
    after_word: bool,
) -> tuple[Guess, ...]:
    """The best ordinary pieces; a model may have more rows than there are pieces, for a mesh."""
    ordinary_O = vocabulary.ordinary_ids
    probability_O = np.exp(log_probability_V[ordinary_O].astype(np.float64))
    probability_O /= probability_O.sum()
    best = np.argsort(-probability_O, kind="stable")[:top_k]
    return tuple(
        _guess(vocabulary, piece, float(probability), after_word)
        for piece, probability in zip(ordinary_O[best].tolist(), probability_O[best], strict=True)
    )


def _guess(vocabulary: Tokenizer, piece: int, probability: float, after_word: bool) -> Guess:
    written = vocabulary.decode([piece])
    is_mark = not written[:1].isalnum()
    unmarked = not vocabulary.marks_every_word and not after_word
    starts_word = vocabulary.starts_word(piece) or is_mark or unmarked
    return Guess(written, probability, piece, starts_word)


def _after_word(vocabulary: Tokenizer, row: Row, place: int) -> bool:
    """Whether a piece at this place could go on with a word: not at the beginning of a text."""
    before = row[place - 1] if place else vocabulary.special.cls_id
    return bool(before == vocabulary.special.mask_id or vocabulary.decode([before])[-1:].isalnum())


def _filled(
    vocabulary: Tokenizer, text: str, row: Row, guesses: tuple[tuple[Guess, ...], ...]
) -> Filled:
    ids = row.copy()
    ids[row == vocabulary.special.mask_id] = [mask[0].id for mask in guesses]
    return Filled(text, guesses, vocabulary.decode(ids))


def encode_masked(vocabulary: Tokenizer, text: str) -> list[int]:
    """The pieces of a text in which each "[MASK]" stands for one piece."""
    # A mask takes the space before it, like a word; to byte-level pieces that would be one.
    first, *others = (part.rstrip() for part in text.split(MASK))
    ids = vocabulary.encode(first)
    for part in others:
        ids += [vocabulary.special.mask_id, *_encode_after_word(vocabulary, part)]
    return ids


def _encode_after_word(vocabulary: Tokenizer, part: str) -> list[int]:
    """The ids of text that follows a word.

    SentencePiece begins every text with a space. Before the full stop in "[MASK]." that would be
    one the model has never seen there, so such a text is encoded after a letter.
    """
    if not part or part[0].isspace():
        return vocabulary.encode(part)
    letter, both = vocabulary.encode("a"), vocabulary.encode(f"a{part}")
    merged = both[: len(letter)] != letter
    return vocabulary.encode(part) if merged else both[len(letter) :]

"""Minimal pairs: does the model find the English one of two sentences likelier?

A masked language model has no likelihood of a sentence. The pseudo-log-likelihood (Wang and Cho,
2019; Salazar et al., 2020) hides one piece at a time and sums the logarithms of the probabilities
of the hidden ones. It favours words of several pieces, each of which the others give away: pairs
whose words differ compare that, too; pairs whose words are the same (`same_words`) do not.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.data.builtin.random_stream import stream
from tupe_jax.data.builtin.tasks.acceptability import contrast
from tupe_jax.data.json_lines import MinimalPair
from tupe_jax.data.pairs import Encoder
from tupe_jax.errors import UserError
from tupe_jax.lab.intervals import Interval, bootstrap, wilson
from tupe_jax.lab.sentences import batches, encode_sentences
from tupe_jax.model.heads import MaskedLM

TIE = 1e-4
"""Nats per piece: sentences that are nearer to each other are alike up to rounding."""
_BATCH_SIZE = 64


@dataclass(frozen=True)
class PairsResult:
    """Accuracy (Wilson; a tie counts half, so guessing gives 0.5), and by how much in nats."""

    count: int
    accuracy: Interval
    delta: Interval
    """Mean of the pseudo-log-likelihood of the good sentence less that of the bad one."""


def score_pairs(
    model: MaskedLM, encoder: Encoder, pairs: Sequence[MinimalPair]
) -> Mapping[str, PairsResult]:
    """Results by paradigm, then for all pairs (`all`) and for those of the same words."""
    if not pairs:
        raise UserError("there are no minimal pairs to score")
    texts = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    rows = encode_sentences(encoder, texts)
    good_N, bad_N = pseudo_log_likelihoods(model, rows, encoder.special.mask_id).reshape(2, -1)
    lengths_N = np.maximum(*np.array([len(row) - 2 for row in rows]).reshape(2, -1))
    delta_N = good_N - bad_N
    hits_N = np.where(abs(delta_N) <= TIE * lengths_N, 0.5, delta_N > 0)
    groups = {
        name: np.array([pair.paradigm == name for pair in pairs])
        for name in sorted({pair.paradigm for pair in pairs})
    }
    groups["all"] = np.ones(len(pairs), bool)
    groups["same words"] = np.array([pair.same_words for pair in pairs])
    return {
        name: PairsResult(int(chosen.sum()), wilson(hits_N[chosen]), bootstrap(delta_N[chosen]))
        for name, chosen in groups.items()
        if chosen.any()
    }


def pseudo_log_likelihoods(
    model: MaskedLM, rows: Sequence[NDArray[np.int32]], mask_id: int
) -> NDArray[np.float64]:
    """Of each row [CLS] text [SEP]: the sum over its pieces, in nats."""
    model.encoder.positions.check_length(max(map(len, rows), default=0))
    graph, state = nnx.split(model)
    # One line for each piece of each row: the row, and the place that is hidden.
    lines_of = [range(1, len(row) - 1) for row in rows]
    repeated = [row for row, places in zip(rows, lines_of, strict=True) for _ in places]
    owner_M = np.repeat(np.arange(len(rows)), [len(places) for places in lines_of])
    place_M = np.concatenate([np.array(places) for places in lines_of])
    total_N = np.zeros(len(rows))
    for tokens_BxS, lines in batches(repeated, model.config, _BATCH_SIZE):
        place_B = np.resize(place_M[lines], len(tokens_BxS))
        scores_B = np.asarray(_log_probability(graph, state, tokens_BxS, place_B, mask_id))
        np.add.at(total_N, owner_M[lines], scores_B[: len(lines)])
    return total_N


@partial(jax.jit, static_argnums=0)
def _log_probability(
    graph: Any, state: Any, tokens_BxS: jax.Array, place_B: jax.Array, mask_id: jax.Array
) -> jax.Array:
    """Log of the probability of each row's piece at its place, when that is hidden: [B]."""
    place_Bx1 = place_B[:, None]
    hidden_Bx1 = jnp.take_along_axis(tokens_BxS, place_Bx1, axis=1)
    is_hidden_BxS = jnp.arange(tokens_BxS.shape[1]) == place_Bx1
    masked_BxS = jnp.where(is_hidden_BxS, mask_id, tokens_BxS)
    logits_BxV = nnx.merge(graph, state)(masked_BxS, positions_BxM=place_Bx1)[:, 0]
    return jnp.take_along_axis(jax.nn.log_softmax(logits_BxV), hidden_Bx1, axis=1)[:, 0]


def builtin_minimal_pairs(count: int, seed: int = 0) -> list[MinimalPair]:
    """Pairs of the built-in grammar: a sentence, and the same with one mistake of a known kind."""
    tries = (contrast(stream("minimal pairs", seed, number)) for number in itertools.count())
    pairs = (MinimalPair(found.right, found.wrong, found.mistake) for found in tries if found)
    return list(itertools.islice(pairs, count))

"""Minimal pairs: does a model prefer the grammatical one of two sentences?

The preference of a masked language model is by pseudo-log-likelihood, which favours words of
several tokens, because each token predicts the others. This affects pairs whose words differ, but
not pairs with the same words (`same_words`). A discriminator of ELECTRA prefers the sentence whose
tokens are more likely all original.
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
from tupe_jax.data.labelled.blimp_snli import MinimalPair
from tupe_jax.inference.batching import TokenIds, batches, encode_sentences
from tupe_jax.inference.fill_mask import pseudo_log_likelihoods
from tupe_jax.lab.intervals import Interval, bootstrap, wilson
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.measurement import full_precision
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError

TIE = 1e-4
"""In nats per token: smaller differences are rounding errors and count as ties."""


@dataclass(frozen=True)
class PairsResult:
    """Accuracy (Wilson; a tie counts 1/2, so chance is 0.5), and the mean difference in nats."""

    count: int
    accuracy: Interval
    delta: Interval
    """Mean score of the good sentence minus that of the bad one."""


@full_precision
def score_pairs(
    model: MaskedLM, encoder: Tokenizer, pairs: Sequence[MinimalPair]
) -> Mapping[str, PairsResult]:
    """Results by paradigm, then for all pairs (`all`) and for pairs with the same words."""
    if not pairs:
        raise UserError("there are no minimal pairs to score")
    texts = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    rows = encode_sentences(encoder, texts, model.config)
    good_N, bad_N = _scores(model, rows, encoder.special.mask_id).reshape(2, -1)
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


def _scores(model: MaskedLM, rows: Sequence[TokenIds], mask_id: int) -> NDArray[np.float64]:
    """In nats: pseudo-log-likelihoods, or log-probabilities that all tokens are original."""
    if model.config.masked_word_head:
        return pseudo_log_likelihoods(model, rows, mask_id)
    graph, state = nnx.split(model)
    scores_N = np.zeros(len(rows))
    for tokens_BxS, indices in batches(rows, model.config):
        sums_B = np.asarray(_log_probability_of_original(graph, state, tokens_BxS), np.float64)
        scores_N[indices] = sums_B[: len(indices)]
    return scores_N


@partial(jax.jit, static_argnums=0)
def _log_probability_of_original(graph: Any, state: Any, tokens_BxS: jax.Array) -> jax.Array:
    model: MaskedLM = nnx.merge(graph, state)
    logits_BxS = model.replaced_BxS(tokens_BxS)
    is_token_BxS = tokens_BxS != model.config.pad_id
    return jnp.where(is_token_BxS, jax.nn.log_sigmoid(-logits_BxS), 0).sum(1)


def builtin_minimal_pairs(count: int, seed: int = 0) -> list[MinimalPair]:
    """Pairs of the built-in grammar: a sentence, and the same with one error of a known kind."""
    tries = (contrast(stream("minimal pairs", seed, number)) for number in itertools.count())
    pairs = (MinimalPair(found.right, found.wrong, found.mistake) for found in tries if found)
    return list(itertools.islice(pairs, count))

"""Minimal pairs: does the model find the English one of two sentences likelier?

Likelier by the pseudo-log-likelihood, which favours words of several pieces, each of which the
others give away: pairs whose words differ compare that, too; pairs whose words are the same
(`same_words`) do not.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tupe_jax.data.builtin.random_stream import stream
from tupe_jax.data.builtin.tasks.acceptability import contrast
from tupe_jax.data.labelled.blimp_snli import MinimalPair
from tupe_jax.inference.batching import encode_sentences
from tupe_jax.inference.fill_mask import pseudo_log_likelihoods
from tupe_jax.lab.intervals import Interval, bootstrap, wilson
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.measurement import full_precision
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError

TIE = 1e-4
"""Nats per piece: sentences that are nearer to each other are alike up to rounding."""


@dataclass(frozen=True)
class PairsResult:
    """Accuracy (Wilson; a tie counts half, so guessing gives 0.5), and by how much in nats."""

    count: int
    accuracy: Interval
    delta: Interval
    """Mean of the pseudo-log-likelihood of the good sentence less that of the bad one."""


@full_precision
def score_pairs(
    model: MaskedLM, encoder: Tokenizer, pairs: Sequence[MinimalPair]
) -> Mapping[str, PairsResult]:
    """Results by paradigm, then for all pairs (`all`) and for those of the same words."""
    if not pairs:
        raise UserError("there are no minimal pairs to score")
    texts = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    rows = encode_sentences(encoder, texts, model.config)
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


def builtin_minimal_pairs(count: int, seed: int = 0) -> list[MinimalPair]:
    """Pairs of the built-in grammar: a sentence, and the same with one mistake of a known kind."""
    tries = (contrast(stream("minimal pairs", seed, number)) for number in itertools.count())
    pairs = (MinimalPair(found.right, found.wrong, found.mistake) for found in tries if found)
    return list(itertools.islice(pairs, count))

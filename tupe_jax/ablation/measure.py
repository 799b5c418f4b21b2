"""What is measured of a pre-trained model, as parts of its record."""

from dataclasses import replace
from typing import Any

from tupe_jax.ablation.config import MeasureConfig
from tupe_jax.ablation.record import PairScore
from tupe_jax.interop.arrays import model_from
from tupe_jax.lab.analysis import fits, look
from tupe_jax.lab.minimal_pairs import builtin_minimal_pairs, score_pairs
from tupe_jax.lab.position_attention import attention_among_identical_words, choose_words
from tupe_jax.model.heads import MaskedLM
from tupe_jax.pretrained import Pretrained


def measure(config: MeasureConfig, pretrained: Pretrained) -> dict[str, Any]:
    """Attention by position, its metrics and kinds, and minimal pairs: fields of a `RunRecord`."""
    # In bfloat16 what should be equal differs by more than what is to be measured.
    exact = replace(pretrained.config, dtype="float32")
    model = model_from(exact, {}, lambda _: pretrained.params)
    # Of the two ways the one that all encodings have: only then can they be compared.
    words = choose_words(pretrained.vocabulary.size, config.words)
    looks = look(attention_among_identical_words(model, config.length, words))
    return {
        "source": looks.attention.source,
        "measures": dict(looks.of_mean),
        "by_head": {
            name: tuple(map(tuple, values_LxH.tolist()))
            for name, values_LxH in looks.by_head.items()
        },
        "kinds": tuple(map(tuple, looks.kinds)),
        "matrices_LxHxNxN": looks.attention.weights_LxHxNxN,
        "pairs": _pairs(config, pretrained, model),
    }


def _pairs(config: MeasureConfig, pretrained: Pretrained, model: MaskedLM) -> dict[str, PairScore]:
    pairs = [
        pair
        for pair in builtin_minimal_pairs(config.minimal_pairs)
        if fits(model.config, pretrained.vocabulary, pair.good, pair.bad)
    ]
    if not pairs:
        return {}
    return {
        name: PairScore(
            found.accuracy.estimate, found.accuracy.low, found.accuracy.high, found.count
        )
        for name, found in score_pairs(model, pretrained.vocabulary, pairs).items()
    }

"""The measurements of a trained model, as fields of its record."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.ablation.config import MeasureConfig
from tupe_jax.ablation.results import PairScore, ProbeScore
from tupe_jax.inference.loading import load
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.lab.analysis import attention_metrics, fits
from tupe_jax.lab.length_extrapolation import LengthScore, masked_stream, scores_by_length
from tupe_jax.lab.minimal_pairs import builtin_minimal_pairs, score_pairs
from tupe_jax.lab.nli_pairs import NliPair, builtin_pairs, snli_pairs
from tupe_jax.lab.nli_probes import probe_nli
from tupe_jax.lab.position_attention import attention_among_identical_words, choose_words
from tupe_jax.model.heads import MaskedLM
from tupe_jax.utils.paths import Path, storage_path

_WORDS = 16
"""The most probing words for long inputs, whose cost is quadratic in the length."""


def measure(
    config: MeasureConfig, pretrained: TrainedModel, held_out_NxS: NDArray[np.int32]
) -> dict[str, Any]:
    """Position-only attention, its metrics and kinds, minimal pairs: fields of `RunRecord`.

    `held_out_NxS` are sequences of the validation text, for other lengths.
    """
    model = pretrained.float32_module()
    # Identical words work with every encoding, so that all variants can be compared.
    words = choose_words(pretrained.tokenizer.ordinary_ids, config.words)
    metrics = attention_metrics(attention_among_identical_words(model, config.length, words))
    return {
        "measures": dict(metrics.of_mean),
        "by_head": {
            name: tuple(map(tuple, values_LxH.tolist()))
            for name, values_LxH in metrics.by_head.items()
        },
        "kinds": tuple(map(tuple, metrics.kinds)),
        "matrices_LxHxNxN": metrics.attention.weights_LxHxNxN,
        "pairs": _pairs(config, pretrained, model),
        "lengths": _lengths(config, pretrained, model, held_out_NxS),
    }


def _lengths(
    config: MeasureConfig, pretrained: TrainedModel, model: MaskedLM, held_out_NxS: NDArray[Any]
) -> tuple[LengthScore, ...]:
    if not config.lengths:
        return ()
    special = pretrained.tokenizer.special
    tokens_N = held_out_NxS[:, 1:].reshape(-1)  # without [CLS]
    stream = masked_stream(
        tokens_N[tokens_N != special.pad_id], special, pretrained.config.vocab_size
    )
    return tuple(
        scores_by_length(
            model,
            config.lengths,
            trained_length=held_out_NxS.shape[1],
            words=choose_words(pretrained.tokenizer.ordinary_ids, min(config.words, _WORDS)),
            stream=stream,
        )
    )


def _pairs(
    config: MeasureConfig, pretrained: TrainedModel, model: MaskedLM
) -> dict[str, PairScore]:
    pairs = [
        pair
        for pair in builtin_minimal_pairs(config.minimal_pairs)
        if fits(model.config, pretrained.tokenizer, pair.good, pair.bad)
    ]
    if not pairs:
        return {}
    return {
        name: PairScore(
            found.accuracy.estimate, found.accuracy.low, found.accuracy.high, found.count
        )
        for name, found in score_pairs(model, pretrained.tokenizer, pairs).items()
    }


def pairs_to_probe_with(config: MeasureConfig) -> list[NliPair]:
    """The sentence pairs whose word order the probes change."""
    if not config.probe_task:
        return []
    if config.probe_file:
        return snli_pairs(storage_path(config.probe_file))[: config.probe_pairs]
    return builtin_pairs("test", config.probe_pairs)


def probe(tuned: Path, pairs: Sequence[NliPair], length: int) -> dict[str, ProbeScore]:
    """The accuracy of a fine-tuned NLI model after changes of word order."""
    model = load(tuned)
    found = probe_nli(model.float32_module(), model.tokenizer, pairs, length=length)
    return {
        result.name: ProbeScore(
            result.changed.estimate,
            result.delta.estimate,
            result.delta.low,
            result.delta.high,
            result.count,
        )
        for result in found.results
    }

"""All measurements of the laboratory for one trained model."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import ModelConfig
from tupe_jax.data.builtin import documents
from tupe_jax.data.labelled.blimp_snli import MinimalPair
from tupe_jax.inference.embeddings import sentence_vectors
from tupe_jax.lab.four_terms import FourTerms, can_be_expanded, four_terms
from tupe_jax.lab.head_kinds import HeadKind, kinds_of
from tupe_jax.lab.length_extrapolation import LengthScore, masked_stream, scores_by_length
from tupe_jax.lab.minimal_pairs import PairsResult, score_pairs
from tupe_jax.lab.nli_pairs import NliPair
from tupe_jax.lab.nli_probes import NliProbes, nli_head, probe_nli
from tupe_jax.lab.order_sensitivity import OrderSensitivity, order_sensitivity
from tupe_jax.lab.parsed_sentence import parsed_sentence
from tupe_jax.lab.position_attention import (
    PositionAttention,
    Source,
    choose_words,
    disagreement_LxH,
    side_by_side,
)
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import classification_heads_of
from tupe_jax.model.positions import longest_input
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError

SEED = 8
"""Seed of the built-in text that is used."""
_SEQUENCES = 32
_SENTENCES = 300
_LENGTH_WORDS = 16
"""The number of probing words for long inputs, whose cost is quadratic in the length."""


@dataclass(frozen=True)
class AttentionMetrics:
    """Position-only attention of one source, its metrics, and the kinds of its heads."""

    attention: PositionAttention
    of_mean: Mapping[str, float]
    by_head: Mapping[str, NDArray[np.float64]]
    """Every metric, [L, H]."""
    kinds: Sequence[Sequence[HeadKind]]


@dataclass(frozen=True)
class Analysis:
    """The results of all measurements."""

    config: ModelConfig
    length: int
    """Positions in every matrix."""
    position_only: Mapping[Source, AttentionMetrics]
    disagreement: NDArray[np.float64] | None
    """Between the two sources, [L, H]; None if there is only one."""
    four_terms: FourTerms | None
    order: OrderSensitivity | None
    """None, like the four terms and the fields below, if the model has no tokenizer."""
    pairs: Mapping[str, PairsResult]
    """Also empty if the model has no masked-LM head."""
    pairs_too_long: int
    """Pairs left out because the model has too few positions."""
    probes: NliProbes | str
    """Or the reason why there are none."""
    lengths: Sequence[LengthScore] = ()
    """Empty unless lengths were requested."""


@dataclass(frozen=True)
class RequestedLengths:
    """Input lengths to measure, in tokens with [CLS]."""

    lengths: Sequence[int]
    trained_length: int
    texts: Sequence[str] | None
    """Sentences to predict masked tokens of; None: built-in text."""


def analyse(
    model: MaskedLM,
    vocabulary: Tokenizer | None,
    *,
    ordinary_ids: NDArray[np.int32],
    length: int,
    words: int,
    pairs: Sequence[MinimalPair],
    probe_pairs: Sequence[NliPair],
    head_lengths: Mapping[str, int],
    requested: RequestedLengths | None = None,
) -> Analysis:
    """Measure `length` positions with `words` probing tokens, score minimal pairs, run probes.

    Probing tokens are chosen from `ordinary_ids`. Without a tokenizer only position-only attention
    is measured. `head_lengths` has the sequence length of each head's fine-tuning, if known.
    """
    attentions = side_by_side(model, length, choose_words(ordinary_ids, words))
    positions_only = Analysis(
        config=model.config,
        length=length,
        position_only={source: attention_metrics(a) for source, a in attentions.items()},
        disagreement=disagreement_LxH(*attentions.values()) if len(attentions) == 2 else None,
        four_terms=None,
        order=None,
        pairs={},
        pairs_too_long=0,
        probes="the model has no tokenizer, so all measurements on text are left out",
        lengths=() if requested is None else _lengths(model, vocabulary, ordinary_ids, requested),
    )
    if vocabulary is None:
        return positions_only
    fitting = [pair for pair in pairs if fits(model.config, vocabulary, pair.good, pair.bad)]
    has_mlm_head = model.config.masked_word_head
    if has_mlm_head and not fitting:
        raise UserError(
            f"none of {len(pairs)} minimal pairs fits into position.max_length="
            f"{model.config.position.max_length} tokens"
        )
    text_BxS = builtin_sequences(vocabulary, length + 1)
    return replace(
        positions_only,
        four_terms=four_terms(model, text_BxS) if can_be_expanded(model.config) else None,
        order=_order(model, vocabulary),
        pairs=score_pairs(model, vocabulary, fitting) if has_mlm_head else {},
        pairs_too_long=len(pairs) - len(fitting),
        probes=_probes(model, vocabulary, probe_pairs, head_lengths),
    )


def attention_metrics(attention: PositionAttention) -> AttentionMetrics:
    """Measure and classify every head."""
    return AttentionMetrics(
        attention,
        attention.measures_of_mean(),
        attention.measures_LxH(),
        kinds_of(attention.weights_LxHxNxN),
    )


def _order(model: MaskedLM, vocabulary: Tokenizer) -> OrderSensitivity:
    sentences = (
        parsed_sentence(s.tree) for d in documents(SEED, 0, _SENTENCES) for s in d.sentences
    )
    fitting = (s for s in sentences if fits(model.config, vocabulary, s.text))
    some = list(itertools.islice(fitting, _SENTENCES))
    return order_sensitivity(
        some, lambda texts: sentence_vectors(model, vocabulary, texts, pooling="mean")
    )


def _probes(
    model: MaskedLM,
    vocabulary: Tokenizer,
    pairs: Sequence[NliPair],
    lengths: Mapping[str, int],
) -> NliProbes | str:
    try:
        length = lengths.get(nli_head(classification_heads_of(model)))
        return probe_nli(model, vocabulary, pairs, length=length)
    except UserError as error:
        return str(error)


def _lengths(
    model: MaskedLM,
    vocabulary: Tokenizer | None,
    ordinary_ids: NDArray[np.int32],
    requested: RequestedLengths,
) -> list[LengthScore]:
    stream = None
    if vocabulary is not None:
        count = _SEQUENCES * max(requested.lengths)
        tokens_N = (
            builtin_stream(vocabulary, count)
            if requested.texts is None
            else _stream(vocabulary, requested.texts)
        )
        stream = masked_stream(tokens_N, vocabulary.special, model.config.vocab_size)
    return scores_by_length(
        model,
        requested.lengths,
        trained_length=requested.trained_length,
        words=choose_words(ordinary_ids, _LENGTH_WORDS),
        stream=stream,
    )


def builtin_sequences(vocabulary: Tokenizer, length: int) -> NDArray[np.int32]:
    """Sequences of built-in text as in training: [CLS], then sentences, each followed by [SEP]."""
    tokens_N = builtin_stream(vocabulary, _SEQUENCES * (length - 1))
    text_BxS = tokens_N.reshape(_SEQUENCES, length - 1)
    return np.pad(text_BxS, ((0, 0), (1, 0)), constant_values=vocabulary.special.cls_id)


def builtin_stream(vocabulary: Tokenizer, count: int) -> NDArray[np.int32]:
    """The first `count` tokens of built-in sentences, each followed by [SEP]."""
    sentences = (s.text for d in documents(SEED, 0, 2 * count) for s in d.sentences)
    return _stream(vocabulary, sentences, count)


def _stream(
    vocabulary: Tokenizer, sentences: Iterable[str], count: int | None = None
) -> NDArray[np.int32]:
    stream: list[int] = []
    for sentence in sentences:
        stream += [*vocabulary.encode(sentence), vocabulary.special.sep_id]
        if count is not None and len(stream) >= count:
            break
    return np.array(stream[:count], np.int32)


def fits(config: ModelConfig, vocabulary: Tokenizer, *texts: str) -> bool:
    """Whether the model has enough positions for each text."""
    return max(len(vocabulary.encode(text)) + 2 for text in texts) <= longest_input(config)

"""Masked language modelling with next-sentence prediction, the objective of BERT.

Devlin, Chang, Lee and Toutanova, NAACL 2019, https://arxiv.org/abs/1810.04805. An example is a pair
of passages, `[CLS] A [SEP] B [SEP]`. From the pooled hidden state of [CLS] the model predicts
whether B follows A in its document or is random. The loss is the sum of both losses.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.config.schema import Config, ModelConfig, next_sentence_config
from tupe_jax.data.pretraining.token_shards import IS_RANDOM_NEXT, SEGMENTS, TOKENS
from tupe_jax.model.flops import training_flops_per_token
from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives.base import Exported, Features, Term
from tupe_jax.objectives.masked_lm import MaskedLMObjective, cross_entropy, term_of_logits
from tupe_jax.objectives.masking import MaskedBatch

MASKED_LM, NEXT_SENTENCE = "masked_lm", "next_sentence"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MaskedPairs:
    """Pairs of passages with masked tokens."""

    masked: MaskedBatch
    segments_BxS: jax.Array
    is_random_next_B: jax.Array
    is_pair_B: jax.Array
    """False for an example that only fills up a batch."""


@dataclass(frozen=True)
class NextSentenceObjective:
    """The cross-entropy of the masked tokens plus that of `is_random_next`."""

    config: Config
    starts_word_V: Sequence[bool] | None = field(default=None, repr=False)

    coefficients: ClassVar[Mapping[str, float]] = {MASKED_LM: 1.0, NEXT_SENTENCE: 1.0}
    loss_unit: ClassVar[str] = "nats per masked token + nats per pair"

    @property
    def _masked_lm(self) -> MaskedLMObjective:
        return MaskedLMObjective(self.config, self.starts_word_V)

    @cached_property
    def _model(self) -> ModelConfig:
        return next_sentence_config(self.config.model)

    @property
    def features(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        length = self.config.data.length
        return {
            **self._masked_lm.features,
            SEGMENTS: jax.ShapeDtypeStruct((length,), np.int32),
            IS_RANDOM_NEXT: jax.ShapeDtypeStruct((), np.int32),
        }

    def build(self, rngs: nnx.Rngs) -> MaskedLM:
        return MaskedLM(self._model, rngs=rngs)

    def prepare(self, batch: Features, key: jax.Array) -> MaskedPairs:
        return MaskedPairs(
            masked=self._masked_lm.prepare(batch, key),
            segments_BxS=batch[SEGMENTS],
            is_random_next_B=batch[IS_RANDOM_NEXT],
            is_pair_B=batch[TOKENS][:, 0] != self.config.model.pad_id,
        )

    def weights(self, inputs: MaskedPairs) -> dict[str, jax.Array]:
        return {
            MASKED_LM: inputs.masked.weights_BxM.sum(),
            NEXT_SENTENCE: inputs.is_pair_B.sum(dtype=jnp.float32),
        }

    def terms(
        self, module: MaskedLM, inputs: MaskedPairs, key: jax.Array | None
    ) -> dict[str, Term]:
        masked = inputs.masked
        token_logits, next_sentence_logits = module.token_and_next_sentence_logits(
            masked.tokens_BxS, inputs.segments_BxS, positions_BxM=masked.positions_BxM, key=key
        )
        return {
            MASKED_LM: term_of_logits(token_logits, masked),
            NEXT_SENTENCE: next_sentence_term(next_sentence_logits, inputs),
        }

    def to_export(self, module: MaskedLM) -> Exported:
        return Exported(module)

    def networks(self) -> Sequence[ModelConfig]:
        return [self._model]

    def training_flops_per_token(self) -> float:
        config = self.config
        return training_flops_per_token(
            self._model,
            config.data.length,
            scored_share=config.objective.mask_rate,
            rows=config.train.batch_size // config.train.accumulate,
        )

    def baseline(
        self, counts_V: NDArray[np.int64], inputs: Iterable[MaskedPairs]
    ) -> Mapping[str, float]:
        batches = list(inputs)
        unigram = self._masked_lm.baseline(counts_V, (batch.masked for batch in batches))
        labels = np.concatenate([batch.is_random_next_B[batch.is_pair_B] for batch in batches])
        share = np.bincount(labels, minlength=2) / len(labels)
        entropy = -sum(p * np.log(p) for p in share if p > 0)
        return {
            "loss": unigram["loss"] + float(entropy),
            **{f"{MASKED_LM}_{name}": value for name, value in unigram.items()},
            f"{NEXT_SENTENCE}_loss": float(entropy),
            f"{NEXT_SENTENCE}_accuracy": float(share.max()),
        }


def next_sentence_term(logits_Bx2: jax.Array, inputs: MaskedPairs) -> Term:
    """Return the loss of the labels, and how many predictions are correct."""
    loss_B = cross_entropy(logits_Bx2, inputs.is_random_next_B)
    correct_B = logits_Bx2.argmax(-1) == inputs.is_random_next_B
    return Term(
        loss=jnp.where(inputs.is_pair_B, loss_B, 0).sum(),
        metrics={"accuracy": (correct_B & inputs.is_pair_B).sum(dtype=jnp.float32)},
    )

"""Masked language modelling: predict the masked tokens."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.config.schema import Config, ModelConfig
from tupe_jax.model.flops import training_flops_per_token
from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives.base import Exported, Features, Term
from tupe_jax.objectives.masking import MaskedBatch, mask_tokens, never_chosen
from tupe_jax.tokenizers.sentencepiece import SPECIAL

TERM = "masked_lm"


@dataclass(frozen=True)
class MaskedLMObjective:
    """The cross-entropy of the masked tokens."""

    config: Config
    starts_word_V: Sequence[bool] | None = field(default=None, repr=False)

    coefficients: ClassVar[Mapping[str, float]] = {TERM: 1.0}
    loss_unit: ClassVar[str] = "nats per masked token"

    @property
    def features(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        return {"tokens": jax.ShapeDtypeStruct((self.config.data.length,), np.int32)}

    def build(self, rngs: nnx.Rngs) -> MaskedLM:
        return MaskedLM(self.config.model, rngs=rngs)

    def prepare(self, batch: Features, key: jax.Array) -> MaskedBatch:
        starts_word_V = self.starts_word_V
        by_word = self.config.objective.mask_unit == "word" and starts_word_V is not None
        return mask_tokens(
            batch["tokens"],
            key,
            objective=self.config.objective,
            special=SPECIAL,
            vocab_size=self.config.model.vocab_size,
            starts_word_V=jnp.array(starts_word_V) if by_word else None,
        )

    def weights(self, inputs: MaskedBatch) -> dict[str, jax.Array]:
        return {TERM: inputs.weights_BxM.sum()}

    def terms(
        self, module: MaskedLM, inputs: MaskedBatch, key: jax.Array | None
    ) -> dict[str, Term]:
        return {TERM: masked_lm_term(module, inputs, key)}

    def to_export(self, module: MaskedLM) -> Exported:
        return Exported(module)

    def networks(self) -> Sequence[ModelConfig]:
        return [self.config.model]

    def training_flops_per_token(self) -> float:
        config = self.config
        return training_flops_per_token(
            config.model,
            config.data.length,
            scored_share=config.objective.mask_rate,
            rows=config.train.batch_size // config.train.accumulate,
        )

    def baseline(
        self, counts_V: NDArray[np.int64], inputs: Iterable[MaskedBatch]
    ) -> Mapping[str, float]:
        unigram = UnigramBaseline.from_counts(
            counts_V, never_chosen(self.config.objective, SPECIAL)
        )
        targets = np.concatenate([scored_targets(masked) for masked in inputs])
        return {"loss": unigram.loss(targets), "accuracy": unigram.accuracy(targets)}


def masked_lm_term(model: MaskedLM, masked: MaskedBatch, key: jax.Array | None) -> Term:
    """Return the loss and the correct predictions of a model at the masked positions."""
    return term_of_logits(masked_logits(model, masked, key), masked)


def masked_logits(model: MaskedLM, masked: MaskedBatch, key: jax.Array | None) -> jax.Array:
    """Return the logits at the masked positions, [B, M, V]."""
    return model(masked.tokens_BxS, positions_BxM=masked.positions_BxM, key=key)


def term_of_logits(logits_BxMxV: jax.Array, masked: MaskedBatch) -> Term:
    """Return the loss and the correct predictions of logits at the masked positions."""
    weights_BxM = masked.weights_BxM
    loss_BxM = cross_entropy(logits_BxMxV, masked.targets_BxM)
    correct_BxM = is_argmax(logits_BxMxV, masked.targets_BxM)
    return Term(
        loss=(loss_BxM * weights_BxM).sum(),
        metrics={"accuracy": (correct_BxM * weights_BxM).sum()},
    )


def is_argmax(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Whether `logits.argmax(-1) == targets`, by two reductions that CPUs do with vectors."""
    size = logits.shape[-1]
    is_max = logits == logits.max(-1, keepdims=True)
    first = jnp.where(is_max, jnp.arange(size), size).min(-1)
    return first == targets


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """-log softmax(logits)[target] in float32; NaN for a target that is no index of the logits."""
    logits = logits.astype(jnp.float32)
    size = logits.shape[-1]
    # Compare and sum instead of a gather: no device needs the logits of another one's tokens.
    is_target = jnp.arange(size) == targets[..., None]
    target_logit = jnp.where(is_target, logits, 0).sum(-1)
    loss = jax.nn.logsumexp(logits, axis=-1) - target_logit
    return jnp.where((targets >= 0) & (targets < size), loss, jnp.nan)


def scored_targets(masked: MaskedBatch) -> NDArray[np.int32]:
    """Return the hidden tokens of a batch in host memory, in one array."""
    targets_BxM = np.asarray(masked.targets_BxM)
    hidden: NDArray[np.int32] = targets_BxM[np.asarray(masked.weights_BxM) > 0]
    return hidden


@dataclass(frozen=True)
class UnigramBaseline:
    """The baseline: predict every masked token from token frequencies only."""

    probability_V: NDArray[np.float64]

    @classmethod
    def from_counts(
        cls, counts_V: NDArray[np.int64], never_chosen: Sequence[int]
    ) -> "UnigramBaseline":
        """Add-one smoothing, over the tokens that masking can choose at all."""
        maskable_V = ~np.isin(np.arange(len(counts_V)), never_chosen)
        smoothed_V = np.where(maskable_V, counts_V + 1.0, 0.0)
        return cls(smoothed_V / smoothed_V.sum())

    @property
    def entropy(self) -> float:
        """In nats: the loss if masked tokens are distributed like the counted text."""
        p = self.probability_V[self.probability_V > 0]
        return float(-(p * np.log(p)).sum())

    def loss(self, targets: NDArray[np.integer]) -> float:
        """Mean cross-entropy of these tokens, in nats; comparable with `valid_loss`."""
        with np.errstate(divide="ignore"):  # infinite for a target that is never masked
            return float(-np.log(self.probability_V[targets]).mean())

    def accuracy(self, targets: NDArray[np.integer]) -> float:
        """How often the most frequent token is right; comparable with `valid_accuracy`."""
        return float((targets == self.probability_V.argmax()).mean())

"""Replaced-token detection (ELECTRA): a discriminator finds the tokens that a generator replaced.

Clark, Luong, Le and Manning, ICLR 2020, https://arxiv.org/abs/2003.10555. The generator is trained
by masked language modelling. Tokens sampled from its predictions replace the masked ones, and the
discriminator predicts for every token whether it was replaced. A sample that equals the original
counts as original. No gradient passes through the samples.
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

from tupe_jax.config.schema import Config, ModelConfig, discriminator_config, generator_config
from tupe_jax.model.electra import Electra
from tupe_jax.model.flops import training_flops_per_token
from tupe_jax.model.layers import split_key
from tupe_jax.objectives.base import Exported, Features, Term
from tupe_jax.objectives.masked_lm import MaskedLMObjective, masked_logits, term_of_logits
from tupe_jax.objectives.masking import MaskedBatch

GENERATOR, DISCRIMINATOR = "generator", "discriminator"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Replacement:
    """Original sequences, the generator's input, and the noise of its samples."""

    tokens_BxS: jax.Array
    masked: MaskedBatch
    noise_BxK: jax.Array
    """The data of a random key for each sequence: its samples depend on neither the other
    sequences nor on how the batch is sharded or split into micro-batches."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ratio:
    """A count as a share of another one; 0 if there is nothing to count."""

    count: jax.Array
    of: jax.Array

    def value(self) -> jax.Array:
        return self.count / jnp.maximum(self.of, 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AreaUnderRoc:
    """The probability that a replaced token has a higher logit than an original one.

    Counted in bins of logits, which add up over batches and devices. Tokens in the same bin count
    as ties: the width of a bin is 1/16 nat of log-odds.
    """

    replaced_N: jax.Array
    original_N: jax.Array

    LARGEST: ClassVar[int] = 8
    PER_NAT: ClassVar[int] = 16

    @classmethod
    def of(
        cls, logits: jax.Array, is_replaced: jax.Array, is_original: jax.Array
    ) -> "AreaUnderRoc":
        clipped = jnp.clip(logits, -cls.LARGEST, cls.LARGEST)
        bins = jnp.round((clipped + cls.LARGEST) * cls.PER_NAT).astype(jnp.int32)
        # Compare and sum: unlike a scatter it needs no other device's tokens.
        is_in_bin = bins[..., None] == jnp.arange(2 * cls.LARGEST * cls.PER_NAT + 1)

        def histogram_N(chosen: jax.Array) -> jax.Array:
            inside = is_in_bin & chosen[..., None]
            return inside.sum(range(chosen.ndim), dtype=jnp.float32)

        return cls(histogram_N(is_replaced), histogram_N(is_original))

    def value(self) -> jax.Array:
        # Shares and not counts: float32 holds the product of two large counts badly.
        replaced_N, original_N = (
            counts_N / jnp.maximum(counts_N.sum(), 1)
            for counts_N in (self.replaced_N, self.original_N)
        )
        below_N = jnp.cumsum(original_N) - original_N
        return (replaced_N * (below_N + original_N / 2)).sum()


@dataclass(frozen=True)
class ReplacedTokenObjective:
    """The generator's masked-token loss and the discriminator's loss on all tokens."""

    config: Config
    starts_word_V: Sequence[bool] | None = field(default=None, repr=False)

    @property
    def _masked_lm(self) -> MaskedLMObjective:
        return MaskedLMObjective(self.config, self.starts_word_V)

    @cached_property
    def _generator(self) -> ModelConfig:
        return generator_config(self.config.model, self.config.objective)

    @cached_property
    def _discriminator(self) -> ModelConfig:
        return discriminator_config(self.config.model)

    @property
    def features(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        return self._masked_lm.features

    @property
    def coefficients(self) -> Mapping[str, float]:
        return {GENERATOR: 1.0, DISCRIMINATOR: self.config.objective.discriminator_weight}

    @property
    def loss_unit(self) -> str:
        weight = self.config.objective.discriminator_weight
        return f"nats per masked token + {weight:g} x nats per token"

    def build(self, rngs: nnx.Rngs) -> Electra:
        return Electra(self._generator, self._discriminator, rngs=rngs)

    def prepare(self, batch: Features, key: jax.Array) -> Replacement:
        masking_key, noise_key = jax.random.split(key)
        tokens_BxS = batch["tokens"].astype(jnp.int32)
        return Replacement(
            tokens_BxS=tokens_BxS,
            masked=self._masked_lm.prepare(batch, masking_key),
            noise_BxK=jax.random.key_data(jax.random.split(noise_key, len(tokens_BxS))),
        )

    def weights(self, inputs: Replacement) -> dict[str, jax.Array]:
        return {
            GENERATOR: inputs.masked.weights_BxM.sum(),
            DISCRIMINATOR: self._is_token_BxS(inputs).sum(dtype=jnp.float32),
        }

    def _is_token_BxS(self, inputs: Replacement) -> jax.Array:
        return inputs.tokens_BxS != self.config.model.pad_id

    def terms(self, module: Electra, inputs: Replacement, key: jax.Array | None) -> dict[str, Term]:
        generator_key, discriminator_key = split_key(key, 2)
        logits_BxMxV = masked_logits(module.generator, inputs.masked, generator_key)
        replaced_BxS = self.replace_tokens(logits_BxMxV, inputs)
        logits_BxS = module.discriminator.replaced_BxS(replaced_BxS, key=discriminator_key)
        return {
            GENERATOR: term_of_logits(logits_BxMxV, inputs.masked),
            DISCRIMINATOR: detection_term(
                logits_BxS, replaced_BxS != inputs.tokens_BxS, self._is_token_BxS(inputs)
            ),
        }

    def replace_tokens(self, logits_BxMxV: jax.Array, inputs: Replacement) -> jax.Array:
        """Return the sequences with a sample from the generator at each masked position.

        [PAD] is never sampled: to the discriminator, a position with [PAD] is no token.
        """
        is_pad_V = jnp.arange(logits_BxMxV.shape[-1]) == self.config.model.pad_id
        keys_B = jax.random.wrap_key_data(inputs.noise_BxK)
        sampled_BxM = jax.vmap(jax.random.categorical)(
            keys_B, jnp.where(is_pad_V, -jnp.inf, logits_BxMxV)
        )
        # Compare and sum: unlike a scatter it needs no other device's tokens.
        position_S = jnp.arange(inputs.tokens_BxS.shape[1])
        is_here_BxMxS = inputs.masked.positions_BxM[..., None] == position_S
        is_here_BxMxS &= inputs.masked.weights_BxM[..., None] > 0
        sampled_BxS = jnp.where(is_here_BxMxS, sampled_BxM[..., None], 0).sum(1)
        return jnp.where(is_here_BxMxS.any(1), sampled_BxS, inputs.tokens_BxS)

    def to_export(self, module: Electra) -> Exported:
        return Exported(module.discriminator, module.generator)

    def networks(self) -> Sequence[ModelConfig]:
        return [self._generator, self._discriminator]

    def training_flops_per_token(self) -> float:
        config = self.config
        rows = config.train.batch_size // config.train.accumulate
        shares = (config.objective.mask_rate, 0.0)
        return sum(
            training_flops_per_token(network, config.data.length, scored_share=share, rows=rows)
            for network, share in zip(self.networks(), shares, strict=True)
        )

    def baseline(
        self, counts_V: NDArray[np.int64], inputs: Iterable[Replacement]
    ) -> Mapping[str, float]:
        unigram = self._masked_lm.baseline(counts_V, (some.masked for some in inputs))
        return {f"{GENERATOR}_{name}": value for name, value in unigram.items()}


def detection_term(
    logits_BxS: jax.Array, is_replaced_BxS: jax.Array, is_token_BxS: jax.Array
) -> Term:
    """Return the binary cross-entropy of all tokens, and how well replaced ones are detected."""
    loss_BxS = jax.nn.softplus(jnp.where(is_replaced_BxS, -logits_BxS, logits_BxS))
    is_detected_BxS = logits_BxS > 0

    def count(chosen_BxS: jax.Array) -> jax.Array:
        return (chosen_BxS & is_token_BxS).sum(dtype=jnp.float32)

    found = count(is_detected_BxS & is_replaced_BxS)
    return Term(
        loss=jnp.where(is_token_BxS, loss_BxS, 0).sum(),
        metrics={
            "accuracy": count(is_detected_BxS == is_replaced_BxS),
            "precision": Ratio(found, of=count(is_detected_BxS)),
            "recall": Ratio(found, of=count(is_replaced_BxS)),
            "replaced": count(is_replaced_BxS),
            "auc": AreaUnderRoc.of(
                logits_BxS, is_replaced_BxS & is_token_BxS, ~is_replaced_BxS & is_token_BxS
            ),
        },
    )

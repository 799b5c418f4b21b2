"""The masked-word loss, as sums: who adds them up decides what to divide by."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives.masking import MaskedBatch


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sums:
    """Float32 sums over scored tokens; those of several batches add up."""

    loss: jax.Array
    """Cross-entropy in nats."""
    correct: jax.Array
    """How many were predicted right."""
    weight: jax.Array
    """How many there were."""

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.loss + other.loss, self.correct + other.correct, self.weight + other.weight
        )


def masked_lm_sums(model: MaskedLM, masked: MaskedBatch, key: jax.Array | None) -> Sums:
    """Loss and hits of the model on masked rows; dropout is on when a key is given."""
    logits_BxMxV = model(masked.tokens_BxS, positions_BxM=masked.positions_BxM, key=key)
    weights_BxM = masked.weights_BxM
    loss_BxM = cross_entropy(logits_BxMxV, masked.targets_BxM)
    correct_BxM = logits_BxMxV.argmax(-1) == masked.targets_BxM
    return Sums(
        loss=(loss_BxM * weights_BxM).sum(),
        correct=(correct_BxM * weights_BxM).sum(),
        weight=weights_BxM.sum(),
    )


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """-log softmax(logits)[target] in float32; NaN for a target that is no index of the logits."""
    logits = logits.astype(jnp.float32)
    size = logits.shape[-1]
    # Compare and sum instead of a gather: that works in place where logits are sharded by word.
    is_target = jnp.arange(size) == targets[..., None]
    target_logit = jnp.where(is_target, logits, 0).sum(-1)
    loss = jax.nn.logsumexp(logits, axis=-1) - target_logit
    return jnp.where((targets >= 0) & (targets < size), loss, jnp.nan)

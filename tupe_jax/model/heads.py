"""Heads on the hidden states (masked or replaced tokens, classes), and the model with them."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from tupe_jax.config.schema import ModelConfig
from tupe_jax.distributed.sharding_rules import constrain
from tupe_jax.model.encoder import Encoder, check_ids
from tupe_jax.model.layers import (
    ACTIVATIONS,
    Axis,
    Linear,
    Weight,
    dropout,
    make_norm,
    zeros,
)
from tupe_jax.utils.errors import UserError


class MaskedLMHead(nnx.Module):
    """Dense, activation and norm; then an untied or tied output matrix, and a bias."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        size = Axis("embed", config.output_size)
        transform = config.masked_word_transform
        # Often square: two names, so that a sharding rule for `embed` is not applied to both axes.
        self.dense = (
            Linear(
                [Axis("embed", config.hidden_size)],
                [Axis(None, size.size)],
                dtype=config.dtype,
                rngs=rngs,
                use_bias=config.linear_bias,
            )
            if transform
            else None
        )
        self.activation = config.activation
        self.norm = make_norm(config, size, rngs=rngs) if transform else None
        self.bias = Weight((config.vocab_size,), ("vocab",), zeros).create(rngs)
        self.output_embedding = (
            Weight((config.vocab_size, size.size), ("vocab", "embed")).create(rngs)
            if config.output_embedding_size
            else None
        )

    def __call__(self, x: jax.Array, word_embedding_VxD: jax.Array) -> jax.Array:
        if self.dense is not None and self.norm is not None:
            x = self.norm(ACTIVATIONS[self.activation](self.dense(x)))
        untied = self.output_embedding
        output_VxD = word_embedding_VxD if untied is None else untied[...]
        logits = jnp.einsum(
            "...d,vd->...v", x, output_VxD.astype(x.dtype), preferred_element_type=jnp.float32
        )
        return logits + self.bias[...]


class ReplacedTokenHead(nnx.Module):
    """ELECTRA's head: dense, activation, then one logit per token, positive for "replaced"."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        embed, dtype = Axis("embed", config.hidden_size), config.dtype
        self.dense = Linear([embed], [Axis(None, embed.size)], dtype=dtype, rngs=rngs)
        self.activation = config.activation
        self.output = Linear([embed], [Axis(None, 1)], dtype="float32", rngs=rngs)

    def __call__(self, hidden_BxSxD: jax.Array) -> jax.Array:
        x_BxSxD = ACTIVATIONS[self.activation](self.dense(hidden_BxSxD))
        return self.output(x_BxSxD.astype(jnp.float32))[..., 0]


class Pooler(nnx.Module):
    """BERT's sentence vector: dense and tanh on the hidden state of [CLS]."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        embed = config.hidden_size
        self.dense = Linear(
            [Axis("embed", embed)], [Axis(None, embed)], dtype=config.dtype, rngs=rngs
        )

    def __call__(self, cls_BxD: jax.Array) -> jax.Array:
        return jnp.tanh(self.dense(cls_BxD))


class NextSentenceHead(nnx.Module):
    """BERT's head on the pooler: the logits of "follows the first text" and "random", [B, 2]."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        inputs = [Axis("embed", config.hidden_size)]
        self.output = Linear(inputs, [Axis(None, 2)], dtype="float32", rngs=rngs)

    def __call__(self, pooled_BxD: jax.Array) -> jax.Array:
        return self.output(pooled_BxD.astype(jnp.float32))


class ClassificationHead(nnx.Module):
    """Pooler, dropout, output layer; one output makes it a regression.

    The pooler is the head's own, unless the model has one for all.
    """

    def __init__(self, config: ModelConfig, num_outputs: int, *, rngs: nnx.Rngs):
        self.pooler = None if config.pooler else Pooler(config, rngs=rngs)
        self.output = Linear(
            [Axis("embed", config.hidden_size)],
            [Axis(None, num_outputs)],
            dtype="float32",
            rngs=rngs,
        )
        self.dropout = config.classifier_dropout

    def __call__(
        self,
        cls_BxD: jax.Array,
        key: jax.Array | None = None,
        shared: Pooler | None = None,
    ) -> jax.Array:
        pooler = shared if self.pooler is None else self.pooler
        assert pooler is not None
        pooled_BxD = dropout(pooler(cls_BxD), self.dropout, key)
        return self.output(pooled_BxD.astype(jnp.float32))


class MaskedLM(nnx.Module):
    """The encoder with the heads of pre-training and any number of classification heads.

    Padding is found from `config.pad_id`. Dropout is on when a random key is given, and only then.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        rngs: nnx.Rngs,
        classification_heads: Mapping[str, int] | None = None,
    ):
        self.config = config
        self.encoder = Encoder(config, rngs=rngs)
        self.masked_word_head = MaskedLMHead(config, rngs=rngs) if config.masked_word_head else None
        self.replaced_token_head = (
            ReplacedTokenHead(config, rngs=rngs) if config.replaced_token_head else None
        )
        self.pooler = Pooler(config, rngs=rngs) if config.pooler else None
        self.next_sentence_head = (
            NextSentenceHead(config, rngs=rngs) if config.next_sentence_head else None
        )
        self.classification_heads = nnx.Dict(
            {
                name: ClassificationHead(config, outputs, rngs=rngs)
                for name, outputs in (classification_heads or {}).items()
            }
        )

    def __call__(
        self,
        tokens_BxS: jax.Array,
        *,
        positions_BxM: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Token logits, float32: [B, S, V], or [B, M, V] at the chosen positions only."""
        self._require_masked_word_head()
        hidden = constrain(self.encode(tokens_BxS, key=key), "batch", None, None)
        return self._token_logits(hidden, tokens_BxS, positions_BxM)

    def token_and_next_sentence_logits(
        self,
        tokens_BxS: jax.Array,
        segments_BxS: jax.Array,
        *,
        positions_BxM: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Token logits, as `__call__` returns them, and the logits [B, 2] of `NextSentenceHead`.

        `segments_BxS` is 1 for the second text. It cannot be derived from the tokens, because a
        mask may hide [SEP].
        """
        self._require_masked_word_head()
        if self.next_sentence_head is None or self.pooler is None:
            raise UserError("the model has no next-sentence head: model.next_sentence_head=False")
        hidden = self.encode(tokens_BxS, segments_BxS=segments_BxS, key=key)
        hidden = constrain(hidden, "batch", None, None)
        pooled_BxD = self.pooler(self.cls_BxD(hidden, tokens_BxS))
        token_logits = self._token_logits(hidden, tokens_BxS, positions_BxM)
        return token_logits, self.next_sentence_head(pooled_BxD)

    def _token_logits(
        self, hidden: jax.Array, tokens_BxS: jax.Array, positions_BxM: jax.Array | None
    ) -> jax.Array:
        if positions_BxM is not None:
            check_ids(positions_BxM, "position", "the sequence: its length", tokens_BxS.shape[1])
            # A negative position would count from the end; outside the sequence it gives NaN.
            index_BxM = jnp.where(positions_BxM < 0, tokens_BxS.shape[1], positions_BxM)
            index_BxM = constrain(index_BxM, "batch", None)
            hidden = jnp.take_along_axis(
                hidden, index_BxM[..., None], axis=1, mode="fill", fill_value=jnp.nan
            )
            hidden = constrain(hidden, "batch", None, None)
        head = self._require_masked_word_head()
        logits = head(hidden, self.encoder.word_embedding[...])
        return constrain(logits, "batch", None, "vocab")

    def _require_masked_word_head(self) -> MaskedLMHead:
        if self.masked_word_head is None:
            raise UserError("the model has no masked-LM head: model.masked_word_head=False")
        return self.masked_word_head

    def replaced_BxS(self, tokens_BxS: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
        """The logit that each token is a replacement, float32."""
        if self.replaced_token_head is None:
            raise UserError("the model has no replaced-token head: model.replaced_token_head=False")
        hidden_BxSxD = constrain(self.encode(tokens_BxS, key=key), "batch", None, None)
        return self.replaced_token_head(hidden_BxSxD)

    def encode(
        self,
        tokens_BxS: jax.Array,
        *,
        segments_BxS: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """The last hidden states, [B, S, D]."""
        return self.encoder(tokens_BxS, segments_BxS=segments_BxS, key=key)

    def hidden_states(self, tokens_BxS: jax.Array) -> list[jax.Array]:
        """The input of the first layer and the output of every layer, [B, S, D] each."""
        return self.encoder.hidden_states(tokens_BxS)

    def classify(
        self, tokens_BxS: jax.Array, head: str, *, key: jax.Array | None = None
    ) -> jax.Array:
        """Outputs of a classification head, float32, [B, classes]."""
        if head not in self.classification_heads:
            known = ", ".join(self.classification_heads) or "none"
            raise UserError(f"no classification head {head!r}; the model has: {known}")
        encoder_key, head_key = (None, None) if key is None else jax.random.split(key)
        cls_BxD = self.cls_BxD(self.encode(tokens_BxS, key=encoder_key), tokens_BxS)
        outputs: jax.Array = self.classification_heads[head](cls_BxD, head_key, self.pooler)
        return outputs

    def cls_BxD(self, hidden_BxSxD: jax.Array, tokens_BxS: jax.Array) -> jax.Array:
        """The hidden states of [CLS]: the first token, or the last before the padding."""
        if not self.config.cls_last:
            return hidden_BxSxD[:, 0]
        is_token_BxS = tokens_BxS != self.config.pad_id
        last_B = jnp.where(is_token_BxS, jnp.arange(tokens_BxS.shape[1]), 0).max(1)
        return jnp.take_along_axis(hidden_BxSxD, last_B[:, None, None], axis=1)[:, 0]

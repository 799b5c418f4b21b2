"""Settings that have the same names in all model types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tupe_jax.config.schema import Activation, ModelConfig, PositionConfig
from tupe_jax.interop.hugging_face.json_settings import JsonSettings
from tupe_jax.model.params import Array

ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}


@dataclass(frozen=True)
class CheckpointContents:
    """What the weights and the tokenizer say about a model."""

    pooler: bool
    masked_word_head: bool
    sep_id: int
    replaced_token_head: bool = False
    next_sentence_head: bool = False
    no_segments: bool = False
    """There is no segment embedding at the input, whatever the config says."""
    output_embedding_size: int = 0
    """The size of an untied output matrix; 0: it is the token embedding."""
    rope_frequencies: Array | None = None
    """The frequencies of RoPE, if the weights have them."""


def encoder(
    settings: JsonSettings,
    contents: CheckpointContents,
    position: PositionConfig,
    *,
    pad_id: int | None = None,
    default_activation: str = "gelu",
    default_dropout: float = 0.1,
    default_eps: float = 1e-12,
    classifier_dropout: float | None = None,
    **others: Any,
) -> ModelConfig:
    """The settings that have the same name in all model types."""
    settings.require("is_decoder", False)
    settings.require("add_cross_attention", False)
    activation = settings.text("hidden_act", default_activation)
    if activation not in ACTIVATIONS:
        settings.require("hidden_act", *ACTIVATIONS)
    dropout = settings.real("hidden_dropout_prob", default_dropout)
    if classifier_dropout is None:
        classifier_dropout = settings.real("classifier_dropout", dropout)
    return ModelConfig(
        vocab_size=settings.size("vocab_size"),
        hidden_size=settings.size("hidden_size"),
        num_layers=settings.size("num_hidden_layers"),
        num_heads=settings.size("num_attention_heads"),
        mlp_size=settings.size("intermediate_size"),
        layer_norm_eps=settings.real("layer_norm_eps", default_eps),
        dropout=dropout,
        attention_dropout=settings.real("attention_probs_dropout_prob", default_dropout),
        classifier_dropout=classifier_dropout,
        activation=ACTIVATIONS[activation],
        pad_id=settings.number("pad_token_id", 0) if pad_id is None else pad_id,
        sep_id=contents.sep_id,
        masked_word_head=contents.masked_word_head,
        replaced_token_head=contents.replaced_token_head,
        output_embedding_size=contents.output_embedding_size,
        next_sentence_head=contents.next_sentence_head,
        pooler=contents.pooler,
        position=position,
        **others,
    )


def added(settings: JsonSettings, offset: int = 0, **relative: Any) -> PositionConfig:
    """Learned positions at the input; the first `offset` rows of the table are unused."""
    settings.require("position_embedding_type", "absolute")
    return PositionConfig(
        absolute="added",
        untie_cls=False,
        max_length=settings.size("max_position_embeddings", 512) - offset,
        **{"relative": "none", **relative},
    )


def segment_count(settings: JsonSettings) -> int:
    return settings.number("type_vocab_size", 2)

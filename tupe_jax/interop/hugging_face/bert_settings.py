"""BERT and the model types that differ little from it: learned positions are added."""

from dataclasses import replace

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.hugging_face.common_settings import (
    CheckpointContents,
    added,
    encoder,
    segment_count,
)
from tupe_jax.interop.hugging_face.json_settings import JsonSettings


def bert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """BERT; StructBERT and MiniLM have the same architecture."""
    segments = 0 if contents.no_segments else segment_count(settings)
    return encoder(settings, contents, added(settings), segments=segments)


def roberta(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """The masked LM head always uses the exact GELU.

    The tokenizer has no segments: all tokens are in the first, whatever the size of the table.
    """
    settings.require("hidden_act", "gelu")
    pad_id = settings.number("pad_token_id", 1)
    position = added(settings, offset=pad_id + 1)
    return encoder(settings, contents, position, pad_id=pad_id, segments=1)


def roberta_prelayernorm(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    return replace(roberta(settings, contents), pre_layer_norm=True)


def distilbert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """BERT without segments and pooler."""
    settings = replace(
        settings,
        aliases={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
        },
    )
    dropout = settings.real("seq_classif_dropout", 0.2)
    return encoder(settings, contents, added(settings), classifier_dropout=dropout)


def megatron_bert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    return encoder(
        settings,
        contents,
        added(settings),
        segments=segment_count(settings),
        embedding_norm=False,
        pre_layer_norm=True,
    )


def rembert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """BERT with small embeddings, and an output matrix of its own."""
    return encoder(
        settings,
        contents,
        added(settings),
        default_dropout=0.0,
        classifier_dropout=settings.real("classifier_dropout_prob", 0.1),
        segments=segment_count(settings),
        embedding_size=settings.size("input_embedding_size", 256),
    )


def electra(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    if contents.masked_word_head:
        settings.require("hidden_act", "gelu")
    size = settings.size("embedding_size", 128)
    return encoder(
        settings,
        contents,
        added(settings),
        segments=0 if contents.no_segments else segment_count(settings),
        embedding_size=0 if size == settings.size("hidden_size") else size,
    )


def albert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    settings.require("num_hidden_groups", 1)
    settings.require("inner_group_num", 1)
    return encoder(
        settings,
        contents,
        added(settings),
        default_activation="gelu_new",
        default_dropout=0.0,
        classifier_dropout=settings.real("classifier_dropout_prob", 0.1),
        segments=segment_count(settings),
        embedding_size=settings.size("embedding_size", 128),
        share_layers=True,
    )


def mpnet(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """Positions are added at the input; attention has T5's bias of 32 buckets up to 128."""
    settings.require("hidden_act", "gelu")
    settings.require("relative_attention_num_buckets", 32)
    # Its code assumes that positions start after padding token 1, whatever the config says.
    settings.require("pad_token_id", 1)
    position = added(settings, offset=2, relative="t5", relative_bins=32, max_distance=128)
    return encoder(settings, contents, position, pad_id=1)

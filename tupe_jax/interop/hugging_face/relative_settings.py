"""DeBERTa and XLNet: attention has terms of distances that need the tokens."""

from typing import Any

from tupe_jax.config.schema import ModelConfig, PositionConfig
from tupe_jax.interop.hugging_face.common_settings import CheckpointContents, encoder
from tupe_jax.interop.hugging_face.json_settings import JsonSettings
from tupe_jax.utils.errors import UserError


def deberta(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """Version 1."""
    settings.require("talking_head", False)
    return _disentangled(settings, contents, buckets=-1)


def deberta_v2(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """Versions 2 and 3."""
    settings.require("conv_kernel_size", 0)
    settings.require("norm_rel_ebd", "none", "layer_norm")
    return _disentangled(settings, contents, buckets=settings.number("position_buckets", -1))


def _disentangled(
    settings: JsonSettings, contents: CheckpointContents, buckets: int
) -> ModelConfig:
    settings.require("relative_attention", True)
    terms = settings.get("pos_att_type")
    listed = terms if isinstance(terms, list) else settings.text("pos_att_type").split("|")
    if sorted(str(part).strip().lower() for part in listed) != ["c2p", "p2c"]:
        settings.require("pos_att_type", "c2p|p2c")
    hidden_size = settings.size("hidden_size")
    settings.require("embedding_size", hidden_size)
    settings.require("attention_head_size", hidden_size // settings.size("num_attention_heads"))
    longest = settings.size("max_position_embeddings", 512)
    farthest = settings.number("max_relative_positions", -1)
    farthest = longest if farthest < 1 else farthest
    if buckets >= farthest:
        raise UserError(
            f"{settings.source}: position_buckets={buckets} is not supported; it must be less "
            f"than the largest distance, {farthest}"
        )
    position = PositionConfig(
        absolute="added" if settings.flag("position_biased_input", True) else "none",
        relative="deberta_released",
        untie_cls=False,
        max_length=longest,
        relative_bins=farthest if buckets < 1 else buckets,
        max_distance=farthest,
    )
    segments = settings.number("type_vocab_size", 0)
    dropout = settings.real("hidden_dropout_prob", 0.1)
    return encoder(
        settings,
        contents,
        position,
        default_eps=1e-7,
        classifier_dropout=settings.real("cls_dropout", dropout),
        segments=segments,
    )


def xlnet(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """XLNet as an encoder: attention is bidirectional and has no memory.

    Sequences end with [CLS]. Hugging Face pads on the left, we pad on the right; with relative
    positions this makes no difference.
    """
    settings.require("attn_type", "bi")
    settings.require("bi_data", False)
    settings.require("clamp_len", -1)
    settings.require("same_length", False)
    settings.require("untie_r", True)
    common: dict[str, Any] = {
        "hidden_size": settings.size("d_model"),
        "num_hidden_layers": settings.size("n_layer"),
        "num_attention_heads": settings.size("n_head"),
        "intermediate_size": settings.size("d_inner"),
        "hidden_act": settings.text("ff_activation", "gelu"),
        "hidden_dropout_prob": settings.real("dropout", 0.1),
        "attention_probs_dropout_prob": settings.real("dropout", 0.1),
    }
    settings.require("d_head", common["hidden_size"] // common["num_attention_heads"])
    position = PositionConfig(absolute="none", relative="transformer_xl", untie_cls=False)
    return encoder(
        JsonSettings({**settings.values, **common}, settings.source),
        contents,
        position,
        pad_id=settings.number("pad_token_id", 5),
        classifier_dropout=settings.real("summary_last_dropout", 0.1),
        embedding_norm=False,
        segment_attention=True,
        cls_last=True,
    )

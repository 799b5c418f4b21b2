"""Model types with RoPE."""

from dataclasses import replace

import numpy as np

from tupe_jax.config.schema import ModelConfig, PositionConfig
from tupe_jax.interop.hugging_face.common_settings import (
    CheckpointContents,
    added,
    encoder,
    segment_count,
)
from tupe_jax.interop.hugging_face.json_settings import JsonSettings
from tupe_jax.utils.errors import UserError


def modernbert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    settings = replace(
        settings,
        aliases={
            "hidden_act": "hidden_activation",
            "layer_norm_eps": "norm_eps",
            "hidden_dropout_prob": "mlp_dropout",
            "attention_probs_dropout_prob": "attention_dropout",
        },
    )
    has_bias = settings.flag("attention_bias", False)
    settings.require("mlp_bias", has_bias)
    if contents.masked_word_head:
        settings.require("classifier_bias", has_bias)
        settings.require("classifier_activation", settings.text("hidden_act", "gelu"))
        settings.require("decoder_bias", True)
    window, every = _windows(settings)
    position = _rope(
        settings,
        rope_base=_rope_base(settings, "full_attention", "global_rope_theta", 160_000.0),
        rope_local_base=_rope_base(settings, "sliding_attention", "local_rope_theta", 10_000.0),
    )
    return encoder(
        settings,
        contents,
        position,
        pad_id=settings.number("pad_token_id", 50_283),
        default_dropout=0.0,
        default_eps=1e-5,
        norm_bias=settings.flag("norm_bias", False),
        linear_bias=has_bias,
        gated_mlp=True,
        pre_layer_norm=True,
        first_attention_norm=False,
        attention_window=window,
        attention_global_every=every,
    )


def roformer(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    settings.require("rotary_value", False)
    hidden_size = settings.size("hidden_size")
    size = settings.size("embedding_size", hidden_size)
    return encoder(
        settings,
        contents,
        _rope(settings),
        segments=0 if contents.no_segments else segment_count(settings),
        embedding_size=0 if size == hidden_size else size,
    )


def esm(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """ESM-1b and ESM-2, language models of proteins."""
    settings.require("is_folding_model", False)
    settings.require("position_embedding_type", "absolute", "rotary")
    pad_id = settings.number("pad_token_id", 1)
    mask_dropout = _MASK_DROPOUT if settings.flag("token_dropout", False) else 0.0
    if settings.text("position_embedding_type", "absolute") == "rotary":
        base = settings.real("rope_theta", 10_000.0)
        precision = _rope_precision(settings, contents, base)
        position = _rope(settings, rope_base=base, rope_precision=precision)
    else:
        position = added(settings, offset=pad_id + 1)
    return encoder(
        replace(settings, values={**settings.values, "hidden_act": "gelu"}),  # whatever it says
        contents,
        position,
        pad_id=pad_id,
        embedding_norm=settings.flag("emb_layer_norm_before", False),
        pre_layer_norm=True,
        mask_dropout=mask_dropout,
        mask_id=settings.number("mask_token_id", None if mask_dropout else ModelConfig.mask_id),
    )


_MASK_DROPOUT = 0.15 * 0.8
"""The share of [MASK] in the training of every ESM."""


def _rope_precision(settings: JsonSettings, contents: CheckpointContents, base: float) -> str:
    """The type of which the frequencies in the weights have the precision."""
    found_h = contents.rope_frequencies
    if found_h is None:
        return "float32"
    half = settings.size("hidden_size") // settings.size("num_attention_heads") // 2
    exact_h = (base ** (-np.arange(half) / half)).astype(np.float32)
    if np.shape(found_h) == exact_h.shape:
        if np.allclose(found_h, exact_h, rtol=1e-6, atol=0):
            return "float32"
        if np.array_equal(found_h, exact_h.astype(np.float16)):
            return "float16"
    raise UserError(f"{settings.source}: rope_theta={base} does not fit the checkpoint's inv_freq")


def eurobert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """RMSNorm and SwiGLU. Heads may share keys and values; `array_layouts.eurobert` copies them."""
    settings = replace(
        settings,
        aliases={
            "layer_norm_eps": "rms_norm_eps",
            "attention_probs_dropout_prob": "attention_dropout",
        },
    )
    has_bias = settings.flag("attention_bias", False)
    settings.require("mlp_bias", has_bias)
    heads = settings.size("num_attention_heads")
    shared = settings.size("num_key_value_heads", heads)
    if heads % shared:
        raise UserError(
            f"{settings.source}: num_attention_heads={heads} is not divisible by "
            f"num_key_value_heads={shared}"
        )
    settings.require("head_dim", settings.size("hidden_size") // heads)
    return encoder(
        settings,
        contents,
        _rope(settings, rope_base=_only_rope_base(settings, 10_000.0)),
        pad_id=settings.number("pad_token_id", 128_001),
        default_activation="silu",
        default_dropout=0.0,
        default_eps=1e-5,
        norm="rms_norm",
        linear_bias=has_bias,
        gated_mlp=True,
        pre_layer_norm=True,
        embedding_norm=False,
        masked_word_transform=False,
    )


def nomic_bert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """SwiGLU without biases; the head has some, so `array_layouts.nomic_bert` adds zeros."""
    settings = _current_nomic_bert(settings)
    heads = settings.size("num_attention_heads")
    settings.require("head_dim", settings.size("hidden_size") // heads)
    return encoder(
        settings,
        contents,
        _rope(settings, rope_base=_only_rope_base(settings, 1_000.0)),
        default_activation="silu",
        default_dropout=0.0,
        segments=segment_count(settings),
        gated_mlp=True,
    )


def _current_nomic_bert(settings: JsonSettings) -> JsonSettings:
    """The settings by their current names; before `transformers` had this type, GPT-2's."""
    if "n_embd" not in settings.values:
        return settings
    settings.require("activation_function", "swiglu")
    for name in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm", "use_rms_norm"):
        settings.require(name, False)
    for name in ("causal", "parallel_block", "rotary_emb_interleaved"):
        settings.require(name, False)
    settings.require("rotary_emb_fraction", 1.0)
    for name in ("rotary_emb_scale_base", "rotary_scaling_factor"):
        settings.require(name, None)
    names = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
        "layer_norm_eps": "layer_norm_epsilon",
        "hidden_dropout_prob": "resid_pdrop",
        "attention_probs_dropout_prob": "attn_pdrop",
        "rope_theta": "rotary_emb_base",
    }
    return replace(settings, aliases=names)


def jina_embeddings_v3(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """The model without its task adapters. Its tokenizer has no segments."""
    settings.require("hidden_act", "gelu")
    return encoder(
        settings,
        contents,
        _rope(settings, rope_base=_only_rope_base(settings, 20_000.0)),
        pad_id=settings.number("pad_token_id", 1),
        default_eps=1e-5,
        segments=1,
    )


def gte(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """GeGLU whose input projections have no bias: `array_layouts.gte` adds zeros."""
    if contents.masked_word_head:
        settings.require("hidden_act", "gelu")
    return encoder(
        settings,
        contents,
        _rope(settings, rope_base=_only_rope_base(settings, 160_000.0)),
        pad_id=settings.number("pad_token_id", 1),
        segments=settings.number("type_vocab_size", 1),
        gated_mlp=True,
    )


def _windows(settings: JsonSettings) -> tuple[int, int]:
    """The window, and the n for which every n-th layer attends to all tokens."""
    layers = settings.size("num_hidden_layers")
    every = settings.size("global_attn_every_n_layers", 3)
    kinds = settings.values.get("layer_types")

    def pattern(every: int) -> list[str]:
        return ["sliding_attention" if i % every else "full_attention" for i in range(layers)]

    if kinds is not None and kinds != pattern(every):
        every = next((n for n in range(1, layers + 1) if kinds == pattern(n)), 0)
        if not every:
            raise UserError(
                f"{settings.source}: layer_types={kinds!r} is not supported; every n-th "
                "layer, beginning with the first, should be full_attention"
            )
    window = settings.size("local_attention", 128)
    if window < 2:
        raise UserError(f"{settings.source}: local_attention={window} should be at least 2")
    # `transformers` also rounds an odd window down.
    return (0, 3) if every == 1 else (window // 2 * 2, every)


def _rope_base(settings: JsonSettings, kind: str, old_name: str, default: float) -> float:
    """The base of RoPE for a kind of layer, from current or older names of settings."""
    settings.require("rope_scaling", None)
    kinds = settings.part("rope_parameters")
    kinds.allow("full_attention", "sliding_attention")
    return _unscaled_base(kinds.part(kind), settings.real(old_name, default))


def _only_rope_base(settings: JsonSettings, default: float) -> float:
    """The base of RoPE in all layers, from current or older names of settings."""
    settings.require("rope_scaling", None)
    parameters = settings.part("rope_parameters")
    return _unscaled_base(parameters, settings.real("rope_theta", default))


def _unscaled_base(parameters: JsonSettings, default: float) -> float:
    """The base in `rope_parameters`; raise if they scale RoPE, also by a former name."""
    for name in ("rope_type", "type"):
        parameters.require(name, "default")
    parameters.require("partial_rotary_factor", 1.0)
    parameters.allow("rope_type", "type", "rope_theta", "partial_rotary_factor")
    return parameters.real("rope_theta", default)


def _rope(settings: JsonSettings, **options: float | str) -> PositionConfig:
    return PositionConfig(
        absolute="none",
        relative="rope",
        untie_cls=False,
        max_length=settings.size("max_position_embeddings", 512),
        options=options,
    )

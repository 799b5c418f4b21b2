"""Arrays that RoBERTa, DeBERTa and XLNet cut in another way than the rest do."""

from collections.abc import Mapping

import numpy as np

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.hugging_face.names import SEGMENTS
from tupe_jax.interop.hugging_face.settings import Settings
from tupe_jax.interop.param_mapping import check_shape
from tupe_jax.model.params import Array

RELATIVE = "encoder.rel_embeddings.weight"


def roberta(
    state: Mapping[str, Array], settings: Settings, config: ModelConfig
) -> dict[str, Array]:
    """Only the segment that its tokenizer gives to every word."""
    return {**state, SEGMENTS: state[SEGMENTS][: config.segments]}


def deberta(
    state: Mapping[str, Array], settings: Settings, config: ModelConfig
) -> dict[str, Array]:
    """Version 1: queries, keys and values apart; biases of zero where it has none."""
    pieces, size = dict(state), config.hidden_size
    nothing_D = np.zeros(size, np.float32)
    for attention in _attentions(config):
        weight_XxD = _take(pieces, f"{attention}.in_proj.weight", 3 * size, size)
        weight_HxNxdxD = weight_XxD.reshape(config.num_heads, 3, config.head_size, size)
        for n, (part, bias) in enumerate((("query", "q_bias"), ("key", ""), ("value", "v_bias"))):
            projection = f"{attention}.{part}_proj"
            pieces[f"{projection}.weight"] = weight_HxNxdxD[:, n].reshape(size, size)
            pieces[f"{projection}.bias"] = pieces.pop(f"{attention}.{bias}") if bias else nothing_D
        for old, new in (("pos_proj", "pos_key_proj"), ("pos_q_proj", "pos_query_proj")):
            for kind in ("weight", "bias"):
                name = f"{attention}.{old}.{kind}"
                if name in pieces:
                    pieces[f"{attention}.{new}.{kind}"] = pieces.pop(name)
        pieces[f"{attention}.pos_key_proj.bias"] = nothing_D
    return pieces


def deberta_v2(
    state: Mapping[str, Array], settings: Settings, config: ModelConfig
) -> dict[str, Array]:
    """Versions 2 and 3: r after its LayerNorm; a position projection even where the words' serves.

    The numbers are theirs. Fine-tuning moves the parts one by one, where theirs are tied.
    """
    pieces = dict(state)
    if settings.text("norm_rel_ebd", "none") == "layer_norm":
        size = config.hidden_size
        scale_D = _take(pieces, "encoder.LayerNorm.weight", size)
        bias_D = _take(pieces, "encoder.LayerNorm.bias", size)
        r_RxD = _take(pieces, RELATIVE, 2 * config.position.relative_bins, size)
        centred = r_RxD - r_RxD.mean(-1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(-1, keepdims=True) + config.layer_norm_eps)
        pieces[RELATIVE] = centred / deviation * scale_D + bias_D
    if settings.flag("share_att_key", False):
        for attention in _attentions(config):
            for part in ("query", "key"):
                for kind in ("weight", "bias"):
                    words = pieces[f"{attention}.{part}_proj.{kind}"]
                    pieces[f"{attention}.pos_{part}_proj.{kind}"] = words
    return pieces


def xlnet(state: Mapping[str, Array], settings: Settings, config: ModelConfig) -> dict[str, Array]:
    """Projections as matrices, without a bias."""
    pieces = dict(state)
    nothing_D = np.zeros(config.hidden_size, np.float32)
    for i in range(config.num_layers):
        attention = f"layer.{i}.rel_attn"
        for part in "qkvo":
            shape = (config.hidden_size, config.num_heads, config.head_size)
            matrix_DxF = _take(pieces, f"{attention}.{part}", *shape).reshape(shape[0], -1)
            # The output's first axis is the output, the others' is the input.
            pieces[f"{attention}.{part}.weight"] = matrix_DxF if part == "o" else matrix_DxF.T
            pieces[f"{attention}.{part}.bias"] = nothing_D
    return pieces


def _take(pieces: dict[str, Array], name: str, *shape: int) -> Array:
    """An array that is not to stay as it is, if it has the shape that the settings ask for."""
    array = pieces.pop(name)
    check_shape(name, array, shape)
    return array


def _attentions(config: ModelConfig) -> list[str]:
    return [f"encoder.layer.{i}.attention.self" for i in range(config.num_layers)]

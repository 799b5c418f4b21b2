"""Convert the arrays that some model types split differently from BERT."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.hugging_face.json_settings import JsonSettings
from tupe_jax.interop.hugging_face.names import SEGMENTS, Names
from tupe_jax.interop.param_mapping import check_shape
from tupe_jax.model.params import Array

RELATIVE = "encoder.rel_embeddings.weight"


def split_joined(name: str, array: Array, table: Names) -> dict[str, Array]:
    """The arrays that are one array in files of an older layout; others as they are."""
    for joined, parts in table.joined.items():
        if f".{joined}." in name:
            pieces = np.array_split(array, len(parts))
            return {
                name.replace(joined, part): piece for part, piece in zip(parts, pieces, strict=True)
            }
    return {name: array}


def with_zero_biases(
    state: Mapping[str, Array], table: Names, config: ModelConfig
) -> dict[str, Array]:
    """The arrays, and zeros for the biases that only our model has. Fine-tuning trains them."""
    arrays = dict(state)
    for part in table.zero_biases:
        if part == table.head_bias:
            if config.masked_word_head:
                arrays.setdefault(part, np.zeros(config.vocab_size, np.float32))
            continue
        for i in range(config.num_layers):
            name = f"{table.layer.format(i)}.{part}"
            if f"{name}.weight" in arrays:
                rows = len(arrays[f"{name}.weight"])
                arrays.setdefault(f"{name}.bias", np.zeros(rows, np.float32))
    return arrays


def roberta(
    state: Mapping[str, Array], settings: JsonSettings, config: ModelConfig
) -> dict[str, Array]:
    """Keep only the segment that its tokenizer gives to every token."""
    return {**state, SEGMENTS: state[SEGMENTS][: config.segments]}


def ernie(
    state: Mapping[str, Array], settings: JsonSettings, config: ModelConfig
) -> dict[str, Array]:
    """Every token is of the first task: its embedding joins those of the segments."""
    arrays = dict(state)
    if settings.flag("use_task_id", False):
        task_TxD = arrays.pop("embeddings.task_type_embeddings.weight")
        arrays[SEGMENTS] = arrays[SEGMENTS] + task_TxD[0]
    return arrays


def roformer(
    state: Mapping[str, Array], settings: JsonSettings, config: ModelConfig
) -> dict[str, Array]:
    """RoFormer rotates features 2m and 2m + 1 of a head; here they become m and m + d/2."""
    return _reordered(state, config, (config.head_size // 2, 2))


def to_roformer(state: Mapping[str, Array], config: ModelConfig) -> dict[str, Array]:
    """The inverse of `roformer`, for exports."""
    return _reordered(state, config, (2, config.head_size // 2))


def _reordered(
    state: Mapping[str, Array], config: ModelConfig, axes: tuple[int, int]
) -> dict[str, Array]:
    """The features of each head's queries and keys, seen as a matrix of this shape, transposed."""
    arrays, size = dict(state), config.hidden_size
    for attention in _attentions(config):
        for part in ("query", "key"):
            for kind, shape in (("weight", (size, size)), ("bias", (size,))):
                name = f"{attention}.{part}.{kind}"
                of_heads = _take(arrays, name, *shape).reshape(config.num_heads, *axes, *shape[1:])
                arrays[name] = np.ascontiguousarray(of_heads.swapaxes(1, 2)).reshape(shape)
    return arrays


def eurobert(
    state: Mapping[str, Array], settings: JsonSettings, config: ModelConfig
) -> dict[str, Array]:
    """Copy keys and values that several heads share. Fine-tuning trains the copies separately."""
    arrays = dict(state)
    shared = settings.size("num_key_value_heads", config.num_heads)
    rows = shared * config.head_size
    for i in range(config.num_layers):
        for part in "kv":
            for kind, shape in (("weight", (rows, config.hidden_size)), ("bias", (rows,))):
                name = f"layers.{i}.self_attn.{part}_proj.{kind}"
                if kind == "bias" and not config.linear_bias:
                    continue
                array = _take(arrays, name, *shape).reshape(shared, config.head_size, *shape[1:])
                copies = np.repeat(array, config.num_heads // shared, axis=0)
                arrays[name] = copies.reshape(config.hidden_size, *shape[1:])
    return arrays


def to_eurobert(state: Mapping[str, Array], table: Names, config: ModelConfig) -> dict[str, Array]:
    """Its head has a bias only if all projections have one: drop ours if it is zero, or add zeros.

    Fine-tuning what was added trains more biases than here; the outputs are the same.
    """
    arrays = dict(state)
    if config.linear_bias or table.head_bias not in arrays:
        return arrays
    if not arrays[table.head_bias].any():
        del arrays[table.head_bias]
        return arrays
    parts = (table.query, table.key, table.value, table.output)
    mlp = (table.mlp_gate, table.mlp_in, table.mlp_out)
    return with_zero_biases(arrays, replace(table, zero_biases=(*parts, *mlp)), config)


def deberta(
    state: Mapping[str, Array], settings: JsonSettings, config: ModelConfig
) -> dict[str, Array]:
    """Version 1: split queries, keys and values; add zeros for missing biases."""
    arrays, size = dict(state), config.hidden_size
    zeros_D = np.zeros(size, np.float32)
    for attention in _attentions(config):
        weight_XxD = _take(arrays, f"{attention}.in_proj.weight", 3 * size, size)
        weight_HxNxdxD = weight_XxD.reshape(config.num_heads, 3, config.head_size, size)
        for n, (part, bias) in enumerate((("query", "q_bias"), ("key", ""), ("value", "v_bias"))):
            projection = f"{attention}.{part}_proj"
            arrays[f"{projection}.weight"] = weight_HxNxdxD[:, n].reshape(size, size)
            arrays[f"{projection}.bias"] = arrays.pop(f"{attention}.{bias}") if bias else zeros_D
        for old, new in (("pos_proj", "pos_key_proj"), ("pos_q_proj", "pos_query_proj")):
            for kind in ("weight", "bias"):
                name = f"{attention}.{old}.{kind}"
                if name in arrays:
                    arrays[f"{attention}.{new}.{kind}"] = arrays.pop(name)
        arrays[f"{attention}.pos_key_proj.bias"] = zeros_D
    return arrays


def deberta_v2(
    state: Mapping[str, Array], settings: JsonSettings, config: ModelConfig
) -> dict[str, Array]:
    """Versions 2 and 3: apply the LayerNorm to r; copy shared projections.

    The outputs are the same. Fine-tuning then trains the copies separately.
    """
    arrays = dict(state)
    if settings.text("norm_rel_ebd", "none") == "layer_norm":
        size = config.hidden_size
        scale_D = _take(arrays, "encoder.LayerNorm.weight", size)
        bias_D = _take(arrays, "encoder.LayerNorm.bias", size)
        r_RxD = _take(arrays, RELATIVE, 2 * config.position.relative_bins, size)
        centred = r_RxD - r_RxD.mean(-1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(-1, keepdims=True) + config.layer_norm_eps)
        arrays[RELATIVE] = centred / deviation * scale_D + bias_D
    if settings.flag("share_att_key", False):
        for attention in _attentions(config):
            for part in ("query", "key"):
                for kind in ("weight", "bias"):
                    content = arrays[f"{attention}.{part}_proj.{kind}"]
                    arrays[f"{attention}.pos_{part}_proj.{kind}"] = content
    return arrays


def xlnet(
    state: Mapping[str, Array], settings: JsonSettings, config: ModelConfig
) -> dict[str, Array]:
    """Reshape projections to matrices; add zero biases."""
    arrays = dict(state)
    zeros_D = np.zeros(config.hidden_size, np.float32)
    for i in range(config.num_layers):
        attention = f"layer.{i}.rel_attn"
        for part in "qkvo":
            shape = (config.hidden_size, config.num_heads, config.head_size)
            matrix_DxF = _take(arrays, f"{attention}.{part}", *shape).reshape(shape[0], -1)
            # The first axis of the output projection is its output, that of the others the input.
            arrays[f"{attention}.{part}.weight"] = matrix_DxF if part == "o" else matrix_DxF.T
            arrays[f"{attention}.{part}.bias"] = zeros_D
    return arrays


def _take(arrays: dict[str, Array], name: str, *shape: int) -> Array:
    """Remove an array and return it; raise if it does not have this shape."""
    array = arrays.pop(name)
    check_shape(name, array, shape)
    return array


def _attentions(config: ModelConfig) -> list[str]:
    return [f"encoder.layer.{i}.attention.self" for i in range(config.num_layers)]

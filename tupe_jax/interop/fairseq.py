"""Convert the state dicts of released TUPE checkpoints to our parameters and back.

Each array is one `ParamMapping` in a list that both directions share.
"""

from collections.abc import Iterator, Mapping

import jax.numpy as jnp
import numpy as np

from tupe_jax.config.schema import ModelConfig, PositionConfig
from tupe_jax.interop.param_mapping import (
    ParamMapping,
    check_names,
    linear,
    norm,
    params_from_state,
    state_from_params,
)
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import (
    Array,
    ParamArrays,
    arrays_of,
    classification_heads_of,
    model_from,
    param_shapes,
)
from tupe_jax.model.positions.distances import t5_bucket
from tupe_jax.utils.errors import UserError

ENCODER = "decoder.sentence_encoder"  # the released code calls its encoder a decoder
LM_HEAD = "decoder.lm_head"
CLASSIFIERS = "classification_heads"
RELATIVE_BINS, MAX_DISTANCE = 32, 128
RELEASED_EPS = 1e-5

RP_BUCKET = f"{ENCODER}.rp_bucket"
IGNORED = (RP_BUCKET, f"{ENCODER}.version")
"""Some releases store these; they follow from the sizes."""


def from_state_dict(
    state: Mapping[str, Array], *, num_heads: int, pad_id: int = 1, pre_layer_norm: bool = False
) -> MaskedLM:
    """The model in a released state dict; dropout is off unless a call gets a key.

    `state` maps released names to arrays, float32 or float16 (`to_state_dict` returns float32 with
    the same values). The sizes, the classification heads and the presence of a relative bias are
    read from it. A missing, unknown or misshapen array is an error.

    Tokens keep their ids; `official_tokens` converts the official ids.
    """
    return model_from(
        *params_from_state_dict(
            state, num_heads=num_heads, pad_id=pad_id, pre_layer_norm=pre_layer_norm
        )
    )


def params_from_state_dict(
    state: Mapping[str, Array], *, num_heads: int, pad_id: int, pre_layer_norm: bool
) -> tuple[ModelConfig, ParamArrays]:
    """The config and the parameters of the model in a released state dict."""
    state = {name: np.asarray(array) for name, array in state.items()}
    for name, array in state.items():
        if name not in IGNORED and array.dtype not in (np.float32, np.float16):
            raise UserError(f"{name} is {array.dtype}; expected float32 or float16")
    state = _split_arrays(state)
    config = _config_of(state, num_heads, pad_id, pre_layer_norm)
    heads = _heads_in(state)
    mappings = list(_mappings(config, heads))
    check_names(state, mappings, {"emb_out_layer_norm": "; is pre_layer_norm right?"})
    return config, params_from_state(state, mappings, param_shapes(config, heads))


def to_state_dict(model: MaskedLM) -> dict[str, Array]:
    """The state dict of a model under the released names; it must be TUPE-A or TUPE-R.

    Tokens keep their ids; `official_tokens.to_official` converts them to the official ids.
    """
    _check_has_released_form(model.config)
    mappings = _mappings(model.config, classification_heads_of(model))
    return _join_arrays(state_from_params(arrays_of(model), mappings))


# ------------------------------------------------------------------------------- all arrays


def _mappings(config: ModelConfig, heads: Mapping[str, int]) -> Iterator[ParamMapping]:
    """All arrays of a released model with this config."""
    yield ParamMapping(EMBEDDING, ("encoder", "word_embedding"), "same")
    yield from norm(f"{ENCODER}.emb_layer_norm", "encoder", "embedding_norm")
    if config.pre_layer_norm:
        yield from norm(f"{ENCODER}.emb_out_layer_norm", "encoder", "final_norm")

    absolute = ("encoder", "positions", "absolute")
    yield ParamMapping(THETA_ROW, (*absolute, "p_theta_1"), "same")
    yield ParamMapping(OTHER_ROWS, (*absolute, "table"), "same")
    yield ParamMapping(f"{ENCODER}.pos_ln.weight", (*absolute, "norm_scale"), "same")
    yield ParamMapping(f"{ENCODER}.pos_ln.bias", (*absolute, "norm_bias"), "same")
    for short, ours in (("q", "query"), ("k", "key")):
        name = f"{ENCODER}.pos_{short}_linear"
        yield ParamMapping(f"{name}.weight", (*absolute, f"{ours}_kernel"), "kernel")
        yield ParamMapping(f"{name}.bias", (*absolute, f"{ours}_bias"), "vector")
    if config.position.relative == "t5":
        table = ("encoder", "positions", "relative", "table")
        yield ParamMapping(f"{ENCODER}.relative_attention_bias.weight", table, "same")

    for i in range(config.num_layers):
        name, path = f"{ENCODER}.layers.{i}", ("encoder", "layers")
        attention = (*path, "attention")
        in_projection = (*attention, "query_key_value")
        yield ParamMapping(
            f"{name}.self_attn.in_proj_weight", (*in_projection, "kernel"), "kernel", (i,)
        )
        yield ParamMapping(
            f"{name}.self_attn.in_proj_bias", (*in_projection, "bias"), "vector", (i,)
        )
        yield from linear(
            f"{name}.self_attn.out_proj", *attention, "output", layout="merge", index=(i,)
        )
        yield from norm(f"{name}.self_attn_layer_norm", *path, "attention_norm", index=(i,))
        yield from linear(f"{name}.fc1", *path, "mlp_in", index=(i,))
        yield from linear(f"{name}.fc2", *path, "mlp_out", index=(i,))
        yield from norm(f"{name}.final_layer_norm", *path, "mlp_norm", index=(i,))

    yield from linear(f"{LM_HEAD}.dense", "masked_word_head", "dense")
    yield from norm(f"{LM_HEAD}.layer_norm", "masked_word_head", "norm")
    yield ParamMapping(OUTPUT_BIAS, ("masked_word_head", "bias"), "same")
    for head in heads:
        path = ("classification_heads", head)
        yield from linear(f"{CLASSIFIERS}.{head}.dense", *path, "pooler", "dense")
        yield from linear(f"{CLASSIFIERS}.{head}.out_proj", *path, "output")


# ----------------------------------------------- arrays that the two formats split differently

POSITION_TABLE = f"{ENCODER}.pos.weight"
THETA_ROW, OTHER_ROWS = f"{POSITION_TABLE} (row 0)", f"{POSITION_TABLE} (rows 1..)"
OUTPUT_MATRIX, OUTPUT_BIAS = f"{LM_HEAD}.weight", f"{LM_HEAD}.bias"
EMBEDDING = f"{ENCODER}.embed_tokens.weight"


def _split_arrays(state: dict[str, Array]) -> dict[str, Array]:
    """Split row 0 off the position table, split U^Q and U^K, drop the copy of the embedding."""
    for name in (EMBEDDING, POSITION_TABLE):
        if name not in state or state[name].ndim != 2:
            raise UserError(f"not a released TUPE model: it has no array {name} of two axes")
    _check_buckets(state.get(RP_BUCKET))
    state = {name: array for name, array in state.items() if name not in IGNORED}
    output = state.pop(OUTPUT_MATRIX, state[EMBEDDING])
    if not np.array_equal(output, state[EMBEDDING], equal_nan=True):
        raise UserError(f"{OUTPUT_MATRIX} differs from {EMBEDDING}; the model has only one of them")
    table = state.pop(POSITION_TABLE)
    state |= {THETA_ROW: table[0], OTHER_ROWS: table[1:]}
    for kind in ("weight", "bias"):  # the newest release stacks the two projections
        stacked, apart = f"{ENCODER}.pos_proj.{kind}", f"{ENCODER}.pos_q_linear.{kind}"
        if stacked in state and apart not in state:
            q, k = np.array_split(state.pop(stacked), 2)
            state |= {apart: q, f"{ENCODER}.pos_k_linear.{kind}": k}
    return state


def _check_buckets(buckets_SxS: Array | None) -> None:
    """Raise if a stored table of buckets differs from the one we compute."""
    if buckets_SxS is None:
        return
    position_S = np.arange(len(buckets_SxS))
    expected = np.array(
        t5_bucket(
            jnp.asarray(position_S[None] - position_S[:, None]),
            num_buckets=RELATIVE_BINS,
            max_distance=MAX_DISTANCE,
        )
    )
    expected[:, 0], expected[0] = RELATIVE_BINS, RELATIVE_BINS // 2
    if not np.array_equal(buckets_SxS, expected):
        raise UserError(
            f"{RP_BUCKET} is not T5's with {RELATIVE_BINS} bins up to distance {MAX_DISTANCE}"
        )


def _join_arrays(state: dict[str, Array]) -> dict[str, Array]:
    state[POSITION_TABLE] = np.concatenate([state.pop(THETA_ROW)[None], state.pop(OTHER_ROWS)])
    state[OUTPUT_MATRIX] = state[EMBEDDING].copy()
    return state


# --------------------------------------------------------------------------- sizes and their checks


def _config_of(
    state: Mapping[str, Array], num_heads: int, pad_id: int, pre_layer_norm: bool
) -> ModelConfig:
    layers = {name.split(".")[3] for name in state if name.startswith(f"{ENCODER}.layers.")}
    vocab_size, hidden_size = state[EMBEDDING].shape
    first_mlp = f"{ENCODER}.layers.0.fc1.bias"
    if first_mlp not in state:
        raise UserError(f"not a released TUPE model: it has no array {first_mlp}")
    relative = state.get(f"{ENCODER}.relative_attention_bias.weight")
    if relative is not None and relative.shape != (RELATIVE_BINS + 1, num_heads):
        raise UserError(
            f"the relative bias has shape {list(relative.shape)}, but {RELATIVE_BINS + 1} bins and "
            f"num_heads={num_heads} require {[RELATIVE_BINS + 1, num_heads]}"
        )
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=len(layers),
        num_heads=num_heads,
        mlp_size=state[first_mlp].size,
        pre_layer_norm=pre_layer_norm,
        pad_id=pad_id,
        position=PositionConfig(
            absolute="untied",
            relative="none" if relative is None else "t5",
            untie_cls=True,
            max_length=len(state[OTHER_ROWS]),
            relative_bins=RELATIVE_BINS,
            max_distance=MAX_DISTANCE,
        ),
    )


def _heads_in(state: Mapping[str, Array]) -> dict[str, int]:
    """The number of outputs of each classification head."""
    names = {
        name.removeprefix(f"{CLASSIFIERS}.").removesuffix(".out_proj.bias"): array.size
        for name, array in state.items()
        if name.startswith(f"{CLASSIFIERS}.") and name.endswith(".out_proj.bias")
    }
    return dict(sorted(names.items()))


def _check_has_released_form(config: ModelConfig) -> None:
    position = config.position
    has_names = (
        position.absolute == "untied" and position.relative in ("none", "t5") and position.untie_cls
    )
    if not has_names:
        raise UserError(
            "the released format holds TUPE-A and TUPE-R only, not "
            f"position.absolute={position.absolute!r}, position.relative={position.relative!r}, "
            f"position.untie_cls={position.untie_cls}"
        )
    if config.layer_norm_eps != RELEASED_EPS:
        raise UserError(
            f"the released format has LayerNorms with eps {RELEASED_EPS}, "
            f"not model.layer_norm_eps={config.layer_norm_eps}"
        )
    default = ModelConfig()
    for name in (
        "embedding_size",
        "embedding_norm",
        "segments",
        "segment_attention",
        "share_layers",
        "activation",
        "masked_word_head",
        "replaced_token_head",
        "pooler",
        "norm",
        "norm_bias",
        "linear_bias",
        "gated_mlp",
        "masked_word_transform",
        "output_embedding_size",
        "query_key_norm",
        "first_attention_norm",
        "attention_window",
    ):
        if getattr(config, name) != getattr(default, name):
            raise UserError(
                f"the released format has no model.{name}={getattr(config, name)!r}, only "
                f"{getattr(default, name)!r}"
            )
    for name, value in position.options.items():
        if value != 1:
            raise UserError(f"the released format has no position.options.{name}={value}, only 1.0")
    bins = (position.relative_bins, position.max_distance)
    if position.relative == "t5" and bins != (RELATIVE_BINS, MAX_DISTANCE):
        raise UserError(
            f"the released format has {RELATIVE_BINS} relative bins up to distance {MAX_DISTANCE}, "
            f"not position.relative_bins={bins[0]} and position.max_distance={bins[1]}"
        )

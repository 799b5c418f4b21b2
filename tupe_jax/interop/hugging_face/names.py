"""The names that each model type gives to the arrays of the one encoder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.param_mapping import Layout, ParamMapping, linear, norm
from tupe_jax.model.params import Path

SEGMENTS = "embeddings.token_type_embeddings.weight"
_RELATIVE = ("positions", "relative")
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_OTHERS_HEADS = (
    "classifier.",
    "qa_outputs.",
    "score.",
    "sequence_summary.",
    "logits_proj.",
    "start_logits.",
    "end_logits.",
    "answer_class.",
)
"""Prefixes of the arrays of task heads, of any model type."""


@dataclass(frozen=True)
class Names:
    """The array names of a model type. An empty name means that it has no such array.

    If several names are equal, one array joins several of ours, such as queries, keys and values.
    """

    layer: str
    """The prefix of layer {}, for the names up to `mlp_norm`."""
    query: str
    key: str
    value: str
    output: str
    attention_norm: str
    mlp_in: str
    mlp_out: str
    mlp_norm: str

    head_dense: str
    """The masked LM head."""
    head_norm: str
    head_bias: str
    head_copies: Mapping[str, str]
    """Names of tied arrays, and of the arrays they are copies of."""

    prefix: str
    """The prefix of the encoder's names in a model with a head."""
    word_embeddings: str = "embeddings.word_embeddings.weight"
    position_embeddings: str = "embeddings.position_embeddings.weight"
    embedding_norm: str = "embeddings.LayerNorm"
    embedding_projection: str = ""
    mlp_gate: str = ""
    """The second input projection of a gated MLP."""
    query_norm: str = ""
    key_norm: str = ""
    final_norm: str = ""
    """The norm at the end of a model whose norms come before the sub-layers."""
    output_embedding: str = ""
    """The output matrix, if it is not the token embedding."""
    relative_table: str = ""
    layer_terms: Mapping[Path, tuple[str, Layout]] = field(default_factory=dict)
    """Other arrays of a layer's attention: our path, their name and layout."""
    pooler: str = "pooler.dense"
    replaced_dense: str = ""
    """The head for replaced tokens."""
    replaced_output: str = ""
    next_sentence: str = ""
    """BERT's head for the second text of a pair, on the pooler."""
    unused: tuple[str, ...] = ()
    """Prefixes of arrays to leave out: heads of other objectives, and buffers."""


BERT = Names(
    prefix="bert.",
    layer="encoder.layer.{}",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    mlp_in="intermediate.dense",
    mlp_out="output.dense",
    mlp_norm="output.LayerNorm",
    head_dense="cls.predictions.transform.dense",
    head_norm="cls.predictions.transform.LayerNorm",
    head_bias="cls.predictions.bias",
    head_copies={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    next_sentence="cls.seq_relationship",
    unused=(*_BUFFERS, *_OTHERS_HEADS),
)

ROBERTA = replace(
    BERT,
    prefix="roberta.",
    head_dense="lm_head.dense",
    head_norm="lm_head.layer_norm",
    head_bias="lm_head.bias",
    head_copies={
        "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)

ELECTRA = replace(
    BERT,
    prefix="electra.",
    embedding_projection="embeddings_project",
    head_dense="generator_predictions.dense",
    head_norm="generator_predictions.LayerNorm",
    head_bias="generator_lm_head.bias",
    head_copies={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
    replaced_dense="discriminator_predictions.dense",
    replaced_output="discriminator_predictions.dense_prediction",
)

MPNET = replace(
    ROBERTA,
    prefix="mpnet.",
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    output="attention.attn.o",
    attention_norm="attention.LayerNorm",
    relative_table="encoder.relative_attention_bias.weight",
)

ALBERT = replace(
    BERT,
    prefix="albert.",
    layer="encoder.albert_layer_groups.{}.albert_layers.0",
    query="attention.query",
    key="attention.key",
    value="attention.value",
    output="attention.dense",
    attention_norm="attention.LayerNorm",
    mlp_in="ffn",
    mlp_out="ffn_output",
    mlp_norm="full_layer_layer_norm",
    embedding_projection="encoder.embedding_hidden_mapping_in",
    pooler="pooler",
    head_dense="predictions.dense",
    head_norm="predictions.LayerNorm",
    head_bias="predictions.bias",
    head_copies={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    unused=(*_BUFFERS, *_OTHERS_HEADS, "sop_classifier."),
)


DEBERTA = replace(  # version 1 also has these names, after `array_layouts.deberta`
    BERT,
    prefix="deberta.",
    query="attention.self.query_proj",
    key="attention.self.key_proj",
    value="attention.self.value_proj",
    relative_table="encoder.rel_embeddings.weight",
    layer_terms={
        (*_RELATIVE, "key_kernel"): ("attention.self.pos_key_proj.weight", "kernel"),
        (*_RELATIVE, "key_bias"): ("attention.self.pos_key_proj.bias", "vector"),
        (*_RELATIVE, "query_kernel"): ("attention.self.pos_query_proj.weight", "kernel"),
        (*_RELATIVE, "query_bias"): ("attention.self.pos_query_proj.bias", "vector"),
    },
    pooler="",  # it belongs to a classifier and has another activation
    unused=(*_BUFFERS, *_OTHERS_HEADS, "pooler.", "lm_predictions.", "mask_predictions."),
)


XLNET = replace(
    BERT,
    prefix="transformer.",
    word_embeddings="word_embedding.weight",
    layer="layer.{}",
    query="rel_attn.q",
    key="rel_attn.k",
    value="rel_attn.v",
    output="rel_attn.o",
    attention_norm="rel_attn.layer_norm",
    mlp_in="ff.layer_1",
    mlp_out="ff.layer_2",
    mlp_norm="ff.layer_norm",
    layer_terms={
        (*_RELATIVE, "kernel"): ("rel_attn.r", "same"),
        (*_RELATIVE, "u_bias"): ("rel_attn.r_w_bias", "same"),
        (*_RELATIVE, "v_bias"): ("rel_attn.r_r_bias", "same"),
        ("segments", "table"): ("rel_attn.seg_embed", "same"),
        ("segments", "bias"): ("rel_attn.r_s_bias", "same"),
    },
    pooler="",
    unused=(*_OTHERS_HEADS, "mask_emb", "lm_loss."),
)


MODERNBERT = Names(
    prefix="model.",
    word_embeddings="embeddings.tok_embeddings.weight",
    embedding_norm="embeddings.norm",
    layer="layers.{}",
    query="attn.Wqkv",
    key="attn.Wqkv",
    value="attn.Wqkv",
    output="attn.Wo",
    attention_norm="attn_norm",
    mlp_gate="mlp.Wi",
    mlp_in="mlp.Wi",
    mlp_out="mlp.Wo",
    mlp_norm="mlp_norm",
    final_norm="final_norm",
    head_dense="head.dense",
    head_norm="head.norm",
    head_bias="decoder.bias",
    head_copies={"decoder.weight": "embeddings.tok_embeddings.weight"},
    output_embedding="decoder.weight",
    pooler="",
    unused=_OTHERS_HEADS,
)


def is_unused(names: Names, config: ModelConfig, name: str) -> bool:
    """Whether our model leaves out this array of a checkpoint."""
    name = name.removeprefix(names.prefix)
    # DeBERTa's files keep a position table that the model does not use.
    is_idle = name == names.position_embeddings and config.position.absolute != "added"
    return is_idle or name.startswith(names.unused)


def mappings(names: Names, config: ModelConfig) -> Iterator[ParamMapping]:
    """All arrays of a model with this type and config."""
    encoder, head, replaced = "encoder", "masked_word_head", "replaced_token_head"
    norm_bias = config.norm_bias and config.norm == "layer_norm"
    yield ParamMapping(names.word_embeddings, (encoder, "word_embedding"), "same")
    if config.position.absolute == "added":
        table = (encoder, "positions", "absolute", "table")
        yield ParamMapping(names.position_embeddings, table, "same")
    if config.segments:
        yield ParamMapping(SEGMENTS, (encoder, "segment_embedding"), "same")
    if config.embedding_norm:
        yield from norm(names.embedding_norm, encoder, "embedding_norm", bias=norm_bias)
    if config.embedding_size:
        yield from linear(names.embedding_projection, encoder, "embedding_projection")
    if names.relative_table:
        ours = "table" if config.position.relative == "t5" else "r"
        yield ParamMapping(names.relative_table, (encoder, "positions", "relative", ours), "same")
    for i in range(1 if config.share_layers else config.num_layers):
        yield from _layer(names, config, i)
    if config.pre_layer_norm:
        yield from norm(names.final_norm, encoder, "final_norm", bias=norm_bias)
    if config.pooler:
        yield from linear(names.pooler, "pooler", "dense")
    if config.masked_word_head:
        if config.masked_word_transform:
            yield from linear(names.head_dense, head, "dense", bias=config.linear_bias)
            yield from norm(names.head_norm, head, "norm", bias=norm_bias)
        yield ParamMapping(names.head_bias, (head, "bias"), "same")
        if config.output_embedding_size:
            yield ParamMapping(names.output_embedding, (head, "output_embedding"), "same")
    if config.replaced_token_head:
        yield from linear(names.replaced_dense, replaced, "dense")
        yield from linear(names.replaced_output, replaced, "output")
    if config.next_sentence_head:
        yield from linear(names.next_sentence, "next_sentence_head", "output")


def _layer(names: Names, config: ModelConfig, i: int) -> Iterator[ParamMapping]:
    def name(part: str) -> str:
        return f"{names.layer.format(i)}.{part}"

    layers, this = ("encoder", "layers"), (i,)
    attention = (*layers, "attention")
    linear_of = partial(linear, index=this, bias=config.linear_bias)
    norm_of = partial(norm, index=this, bias=config.norm_bias and config.norm == "layer_norm")
    for n, part in enumerate((names.query, names.key, names.value)):
        projection = (*attention, "query_key_value")
        kernel_index = (i, slice(None), n)
        yield ParamMapping(f"{name(part)}.weight", (*projection, "kernel"), "kernel", kernel_index)
        if config.linear_bias:
            yield ParamMapping(f"{name(part)}.bias", (*projection, "bias"), "vector", (i, n))
    if config.query_key_norm:
        yield from norm_of(name(names.query_norm), *attention, "query_norm")
        yield from norm_of(name(names.key_norm), *attention, "key_norm")
    for ours, (part, layout) in names.layer_terms.items():
        yield ParamMapping(name(part), (*attention, *ours), layout, this)
    yield from linear_of(name(names.output), *attention, "output", layout="merge")
    if i > 0 or config.first_attention_norm:
        yield from norm_of(name(names.attention_norm), *layers, "attention_norm")
    if config.gated_mlp:
        yield from linear_of(name(names.mlp_gate), *layers, "mlp_gate")
    yield from linear_of(name(names.mlp_in), *layers, "mlp_in")
    yield from linear_of(name(names.mlp_out), *layers, "mlp_out")
    yield from norm_of(name(names.mlp_norm), *layers, "mlp_norm")

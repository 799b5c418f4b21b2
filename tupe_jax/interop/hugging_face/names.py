"""The names that each model type gives to the arrays of the one encoder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.param_mapping import Layout, ParamMapping, linear, norm
from tupe_jax.model.params import Path

SEGMENTS = "embeddings.token_type_embeddings.weight"
ROPE_FREQUENCIES = "rotary_embeddings.inv_freq"
"""The end of the names of arrays with frequencies that follow from the config."""


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
    classifiers_have_head_dense: bool = False
    """Classifiers have the dense layer and the norm of the masked LM head, too."""
    old_prefix: str = ""
    """The same in files from before `transformers` had the model type."""
    old_parts: Mapping[str, str] = field(default_factory=dict)
    """Parts of names in such files, and what they are now."""
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Arrays of such files that are now several, one below the other."""
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
    is_tied: bool = True
    """What `tie_word_embeddings` is if the config does not say it."""
    zero_biases: tuple[str, ...] = ()
    """Projections of a layer, and arrays of the head, of which we have a bias but they do not."""
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


def usual_name(names: Names, name: str) -> str:
    """The current name of an array, without the prefix of a model with a head."""
    name = name.removeprefix(names.prefix).removeprefix(names.old_prefix)
    # Checkpoints before 2019 have the names of TensorFlow.
    parts = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    for old, new in {**parts, **names.old_parts}.items():
        name = name.replace(old, new)
    return name


def is_unused(names: Names, config: ModelConfig, name: str) -> bool:
    """Whether our model leaves out this array of a checkpoint."""
    name = usual_name(names, name)
    # DeBERTa's files keep a position table that the model does not use.
    is_idle = name == names.position_embeddings and config.position.absolute != "added"
    if names.classifiers_have_head_dense and not config.masked_word_head:
        is_idle |= name.startswith((f"{names.head_dense}.", f"{names.head_norm}."))
    return is_idle or name.startswith(names.unused) or name.endswith(ROPE_FREQUENCIES)


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

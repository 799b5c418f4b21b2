"""The array names of each model type."""

from collections.abc import Mapping
from dataclasses import replace

from tupe_jax.interop.hugging_face.names import Names

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
    output_embedding="cls.predictions.decoder.weight",
    next_sentence="cls.seq_relationship",
    unused=(*_BUFFERS, *_OTHERS_HEADS),
)

ERNIE = replace(BERT, prefix="ernie.")

DISTILBERT = replace(
    BERT,
    prefix="distilbert.",
    layer="transformer.layer.{}",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    output="attention.out_lin",
    attention_norm="sa_layer_norm",
    mlp_in="ffn.lin1",
    mlp_out="ffn.lin2",
    mlp_norm="output_layer_norm",
    pooler="",
    head_dense="vocab_transform",
    head_norm="vocab_layer_norm",
    head_bias="vocab_projector.bias",
    head_copies={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    output_embedding="vocab_projector.weight",
    unused=(*_BUFFERS, *_OTHERS_HEADS, "pre_classifier."),
)

MEGATRON_BERT = replace(
    BERT, embedding_norm="", attention_norm="attention.ln", mlp_norm="ln", final_norm="encoder.ln"
)

REMBERT = replace(
    BERT,
    prefix="rembert.",
    embedding_projection="encoder.embedding_hidden_mapping_in",
    head_dense="cls.predictions.dense",
    head_norm="cls.predictions.LayerNorm",
    head_bias="cls.predictions.decoder.bias",
    head_copies={},
    is_tied=False,
)

ROFORMER = replace(
    BERT,
    prefix="roformer.",
    embedding_projection="embeddings_project",
    pooler="",
    unused=(*_BUFFERS, *_OTHERS_HEADS, "encoder.embed_positions.", "pooler."),
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
    output_embedding="lm_head.decoder.weight",
)

ROBERTA_PRELAYERNORM = replace(
    ROBERTA,
    prefix="roberta_prelayernorm.",
    attention_norm="attention.LayerNorm",
    mlp_norm="intermediate.LayerNorm",
    final_norm="LayerNorm",
)

ESM = replace(
    ROBERTA,
    prefix="esm.",
    embedding_norm="embeddings.layer_norm",
    attention_norm="attention.LayerNorm",
    mlp_norm="LayerNorm",
    final_norm="encoder.emb_layer_norm_after",
    unused=(*_BUFFERS, *_OTHERS_HEADS, "contact_head."),
)

ELECTRA = replace(
    BERT,
    prefix="electra.",
    embedding_projection="embeddings_project",
    head_dense="generator_predictions.dense",
    head_norm="generator_predictions.LayerNorm",
    head_bias="generator_lm_head.bias",
    head_copies={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
    output_embedding="generator_lm_head.weight",
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
    output_embedding="predictions.decoder.weight",
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
    classifiers_have_head_dense=True,
    head_bias="decoder.bias",
    head_copies={"decoder.weight": "embeddings.tok_embeddings.weight"},
    output_embedding="decoder.weight",
    pooler="",
    unused=_OTHERS_HEADS,
)


_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")

EUROBERT = Names(
    prefix="model.",
    word_embeddings="embed_tokens.weight",
    layer="layers.{}",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    output="self_attn.o_proj",
    attention_norm="input_layernorm",
    mlp_gate="mlp.gate_proj",
    mlp_in="mlp.up_proj",
    mlp_out="mlp.down_proj",
    mlp_norm="post_attention_layernorm",
    final_norm="norm",
    head_dense="",
    head_norm="",
    head_bias="lm_head.bias",
    head_copies={"lm_head.weight": "embed_tokens.weight"},
    output_embedding="lm_head.weight",
    is_tied=False,
    zero_biases=("lm_head.bias",),
    pooler="",
    unused=(*_OTHERS_HEADS, "dense."),
)

NOMIC_BERT = replace(
    EUROBERT,
    prefix="nomic_bert.",
    old_prefix="bert.",
    old_parts={
        "emb_ln.": "embeddings.LayerNorm.",
        "encoder.layers.": "layers.",
        ".attn.Wqkv.": ".self_attn.qkv_proj.",
        ".attn.out_proj.": ".self_attn.o_proj.",
        ".fc11.": ".up_proj.",
        ".fc12.": ".gate_proj.",
        ".fc2.": ".down_proj.",
        ".norm1.": ".post_attention_layernorm.",
        ".norm2.": ".post_mlp_layernorm.",
    },
    joined={"self_attn.qkv_proj": _QKV},
    word_embeddings="embeddings.word_embeddings.weight",
    embedding_norm="embeddings.LayerNorm",
    attention_norm="post_attention_layernorm",
    mlp_norm="post_mlp_layernorm",
    final_norm="",
    head_dense="cls.predictions.transform.dense",
    head_norm="cls.predictions.transform.layer_norm",
    head_bias="cls.predictions.bias",
    head_copies=BERT.head_copies,
    output_embedding=BERT.output_embedding,
    is_tied=True,
    zero_biases=(*_QKV, "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    pooler="pooler.dense",
    unused=(*_BUFFERS, *_OTHERS_HEADS),
)

JINA_EMBEDDINGS_V3 = replace(
    NOMIC_BERT,
    prefix="roberta.",
    old_prefix="",
    old_parts={
        "emb_ln.": "embeddings.LayerNorm.",
        "encoder.layers.": "layers.",
        ".mixer.Wqkv.": ".self_attn.qkv_proj.",
        ".mixer.out_proj.": ".self_attn.o_proj.",
        ".norm1.": ".post_attention_layernorm.",
        ".norm2.": ".post_mlp_layernorm.",
    },
    mlp_gate="",
    mlp_in="mlp.fc1",
    mlp_out="mlp.fc2",
    head_dense=ROBERTA.head_dense,
    head_norm=ROBERTA.head_norm,
    head_bias=ROBERTA.head_bias,
    head_copies=ROBERTA.head_copies,
    output_embedding=ROBERTA.output_embedding,
    zero_biases=(),
)

GTE = replace(
    JINA_EMBEDDINGS_V3,
    prefix="gte.",
    old_prefix="new.",
    old_parts={
        "encoder.layer.": "layers.",
        ".attention.qkv_proj.": ".self_attn.qkv_proj.",
        ".attention.o_proj.": ".self_attn.o_proj.",
        ".attn_ln.": ".post_attention_layernorm.",
        ".mlp_ln.": ".post_mlp_layernorm.",
        "lm_head.norm.": "lm_head.layer_norm.",
    },
    joined={"self_attn.qkv_proj": _QKV, "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj")},
    mlp_gate="mlp.gate_proj",
    mlp_in="mlp.up_proj",
    mlp_out="mlp.down_proj",
    zero_biases=("mlp.up_proj", "mlp.gate_proj"),
)

NAMES: Mapping[str, Names] = {
    "bert": BERT,
    "ernie": ERNIE,
    "distilbert": DISTILBERT,
    "megatron-bert": MEGATRON_BERT,
    "rembert": REMBERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "roberta-prelayernorm": ROBERTA_PRELAYERNORM,
    "electra": ELECTRA,
    "albert": ALBERT,
    "mpnet": MPNET,
    "deberta": DEBERTA,
    "deberta-v2": DEBERTA,
    "xlnet": XLNET,
    "modernbert": MODERNBERT,
    "roformer": ROFORMER,
    "esm": ESM,
    "eurobert": EUROBERT,
    "nomic_bert": NOMIC_BERT,
    "jina_embeddings_v3": JINA_EMBEDDINGS_V3,
    "gte": GTE,
}

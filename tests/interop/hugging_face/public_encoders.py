"""Small models of `transformers` with random weights that all matter, built without a network."""

import functools

import numpy as np
import torch
import transformers

PAD, SEP = 1, 3
SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
    "pad_token_id": PAD,
}

XLNET = {
    "vocab_size": 60,
    "d_model": 32,
    "n_layer": 2,
    "n_head": 4,
    "d_inner": 48,
    "pad_token_id": PAD,
}
DISENTANGLED = {
    **SIZES,
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_biased_input": False,
    "max_relative_positions": 15,
}

MODERNBERT = {
    **SIZES,
    "num_hidden_layers": 5,
    "local_attention": 8,
    **dict.fromkeys(("bos_token_id", "cls_token_id"), 2),
    **dict.fromkeys(("eos_token_id", "sep_token_id"), SEP),
}

DISTILBERT = {
    "vocab_size": 60,
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 24,
    "pad_token_id": PAD,
}
ESM = {**SIZES, "mask_token_id": 2, "layer_norm_eps": 1e-5}
EUROBERT = {**SIZES, **dict.fromkeys(("bos_token_id", "mask_token_id"), 2), "eos_token_id": SEP}

MODELS = {
    "bert": (transformers.BertForPreTraining, transformers.BertConfig(**SIZES)),
    "roberta": (
        transformers.RobertaForMaskedLM,
        transformers.RobertaConfig(**SIZES, type_vocab_size=2, layer_norm_eps=1e-5),
    ),
    "electra": (
        transformers.ElectraForMaskedLM,
        transformers.ElectraConfig(**SIZES, embedding_size=16),
    ),
    "albert": (
        transformers.AlbertForPreTraining,
        transformers.AlbertConfig(**SIZES, embedding_size=16),
    ),
    "mpnet": (transformers.MPNetForMaskedLM, transformers.MPNetConfig(**SIZES)),
    "deberta": (transformers.DebertaForMaskedLM, transformers.DebertaConfig(**DISENTANGLED)),
    "deberta-v2": (
        transformers.DebertaV2ForMaskedLM,
        transformers.DebertaV2Config(**DISENTANGLED, type_vocab_size=2),
    ),
    "xlnet": (transformers.XLNetLMHeadModel, transformers.XLNetConfig(**XLNET)),
    "modernbert": (transformers.ModernBertForMaskedLM, transformers.ModernBertConfig(**MODERNBERT)),
    "modernbert-with-biases": (
        transformers.ModernBertForMaskedLM,
        transformers.ModernBertConfig(
            **MODERNBERT,
            **dict.fromkeys(("attention_bias", "mlp_bias", "classifier_bias", "norm_bias"), True),
            tie_word_embeddings=False,
        ),
    ),
    "distilbert": (transformers.DistilBertForMaskedLM, transformers.DistilBertConfig(**DISTILBERT)),
    "xlm-roberta": (transformers.XLMRobertaForMaskedLM, transformers.XLMRobertaConfig(**SIZES)),
    "camembert": (transformers.CamembertForMaskedLM, transformers.CamembertConfig(**SIZES)),
    "ernie": (
        transformers.ErnieForPreTraining,
        transformers.ErnieConfig(**SIZES, type_vocab_size=4, use_task_id=True),
    ),
    "ernie-without-tasks": (transformers.ErnieForPreTraining, transformers.ErnieConfig(**SIZES)),
    "roberta-prelayernorm": (
        transformers.RobertaPreLayerNormForMaskedLM,
        transformers.RobertaPreLayerNormConfig(**SIZES),
    ),
    "megatron-bert": (
        transformers.MegatronBertForPreTraining,
        transformers.MegatronBertConfig(**SIZES),
    ),
    "rembert": (
        transformers.RemBertForMaskedLM,
        transformers.RemBertConfig(
            **SIZES, input_embedding_size=16, output_embedding_size=24, bos_token_id=2
        ),
    ),
    "roformer": (
        transformers.RoFormerForMaskedLM,
        transformers.RoFormerConfig(**SIZES, embedding_size=16),
    ),
    "esm": (
        transformers.EsmForMaskedLM,
        transformers.EsmConfig(**ESM, token_dropout=True, position_embedding_type="rotary"),
    ),
    "esm-absolute": (
        transformers.EsmForMaskedLM,
        transformers.EsmConfig(
            **ESM, emb_layer_norm_before=True, position_embedding_type="absolute"
        ),
    ),
    "eurobert": (
        transformers.EuroBertForMaskedLM,
        transformers.EuroBertConfig(**EUROBERT, num_key_value_heads=2),
    ),
    "eurobert-with-biases": (
        transformers.EuroBertForMaskedLM,
        transformers.EuroBertConfig(
            **EUROBERT,
            **dict.fromkeys(("attention_bias", "mlp_bias", "tie_word_embeddings"), True),
            rope_parameters={"rope_type": "default", "rope_theta": 250.0},
        ),
    ),
    "nomic_bert": (transformers.NomicBertForMaskedLM, transformers.NomicBertConfig(**SIZES)),
    "jina_embeddings_v3": (
        transformers.JinaEmbeddingsV3ForMaskedLM,
        transformers.JinaEmbeddingsV3Config(**SIZES),
    ),
    "gte": (transformers.GteForMaskedLM, transformers.GteConfig(**SIZES)),
    "deberta-v3": (
        transformers.DebertaV2ForMaskedLM,
        transformers.DebertaV2Config(
            **DISENTANGLED, position_buckets=6, share_att_key=True, norm_rel_ebd="layer_norm"
        ),
    ),
}

UNTIED = ("bert", "roberta-prelayernorm", "electra", "esm", "nomic_bert", "gte")
MODELS |= {
    f"{kind}-untied": (
        MODELS[kind][0],
        type(MODELS[kind][1])(**{**MODELS[kind][1].to_dict(), "tie_word_embeddings": False}),
    )
    for kind in UNTIED
}


WITHOUT_TOKEN_TYPES = ("roberta", "xlm-roberta", "camembert", "roberta-prelayernorm")
"""Types with a table of segments whose tokenizers put every token into the first."""


@functools.cache
def theirs(kind):
    """The model of `transformers`."""
    torch.manual_seed(0)
    make, config = MODELS[kind]
    config._attn_implementation = "eager"
    model = make(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            *_, part, last = name.lower().split(".")
            is_scale = ("norm" in part or part == "ln") and last == "weight"
            if parameter.requires_grad:  # RoFormer's table of sines is a parameter, too
                parameter.copy_(is_scale + 0.3 * torch.randn_like(parameter))
        if kind == "esm":  # published models have frequencies of this precision
            model.esm.rotary_embeddings.inv_freq = model.esm.rotary_embeddings.inv_freq.half()
    return model


def arrays(model):
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def rows():
    """A pair and a single sentence with padding behind it: tokens, which are words, segments."""
    tokens = np.random.default_rng(0).integers(4, 60, (2, 20))
    tokens[0, [3, 4]], tokens[0, [8, 19]] = 2, SEP
    tokens[1, 13], tokens[1, 14:] = SEP, PAD
    segments = np.zeros_like(tokens)
    segments[0, 9:] = 1
    return tokens, tokens != PAD, segments


def run(model, tokens, is_word, segments):
    """Every output of `transformers` for these sequences."""
    has_segments = getattr(model.config, "type_vocab_size", 0) > 1
    has_segments &= model.config.model_type not in WITHOUT_TOKEN_TYPES
    has_segments |= model.config.model_type == "xlnet"
    with torch.no_grad():
        return model(
            input_ids=torch.tensor(tokens),
            attention_mask=torch.tensor(is_word.astype(np.int64)),
            output_hidden_states=True,
            output_attentions=True,
            **({"token_type_ids": torch.tensor(segments)} if has_segments else {}),
        )

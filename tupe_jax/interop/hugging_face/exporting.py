"""Export BERT-A, also as ELECTRA, and RoPE in the blocks of RoFormer, ModernBERT and EuroBERT.

`transformers` has none of our other encodings.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import safetensors.numpy

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.hugging_face import array_layouts, files, names, sentencepiece_layout
from tupe_jax.interop.hugging_face.common_settings import ACTIVATIONS
from tupe_jax.interop.hugging_face.name_tables import NAMES
from tupe_jax.interop.hugging_face.tokenizer import TOKENIZER, TOKENIZER_SETTINGS
from tupe_jax.interop.hugging_face.tokenizer_layout import tokenizer_files
from tupe_jax.interop.model_folder import SENTENCEPIECE_TOKENIZER
from tupe_jax.interop.param_mapping import state_from_params
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import Array, arrays_of, classification_heads_of
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError

GENERATOR_FOLDER = "generator"

ModelType = Literal["bert", "electra", "eurobert", "modernbert", "roformer"]


def write_files(
    model: MaskedLM,
    tokenizer: Tokenizer | None,
    folder: pathlib.Path,
    generator: MaskedLM | None = None,
) -> None:
    """Write config, weights and tokenizer to an existing folder.

    `from_pretrained` of the class that `architecture` names reads the config and the weights;
    those of a model with a head for next sentences `BertForPreTraining`, those of a discriminator
    `ElectraForPreTraining`, and those of its generator, in a folder inside, `ElectraForMaskedLM`.
    A tokenizer is written in Hugging Face's format. A SentencePiece model is also copied; tupe_jax
    reads that one.
    """
    _write(*to_state_dict(model), tokenizer, folder)
    if generator is not None:
        inside = folder / GENERATOR_FOLDER
        inside.mkdir()
        _write(*to_state_dict(generator, as_electra=True), tokenizer, inside)


def _write(
    config: Mapping[str, Any],
    state: dict[str, Array],
    tokenizer: Tokenizer | None,
    folder: pathlib.Path,
) -> None:
    if tokenizer is not None:
        _write_tokenizer(tokenizer, config, folder)
    _write_json(folder / files.CONFIG, config)
    safetensors.numpy.save_file(state, folder / files.WEIGHTS, metadata={"format": "pt"})


def _write_tokenizer(tokenizer: Tokenizer, config: Mapping[str, Any], folder: pathlib.Path) -> None:
    longest = config["max_position_embeddings"]
    has_segments = config.get("type_vocab_size", 0) > 1
    if isinstance(tokenizer, SentencePieceTokenizer):
        (folder / SENTENCEPIECE_TOKENIZER).write_bytes(tokenizer.content)
        saved = sentencepiece_layout.tokenizer_json(tokenizer)
        settings = sentencepiece_layout.tokenizer_settings(longest, has_segments=has_segments)
    else:
        saved, settings = tokenizer_files(
            tokenizer,
            longest,
            has_segments=has_segments,
            has_bos=config["model_type"] == "eurobert",
        )
    _write_json(folder / TOKENIZER, saved)
    _write_json(folder / TOKENIZER_SETTINGS, settings)


def _write_json(file: pathlib.Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")


def to_state_dict(
    model: MaskedLM, *, as_electra: bool = False
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The content of `config.json`, and the state dict of a model of one of the types."""
    config = model.config
    model_type = _model_type(config, as_electra=as_electra)
    _check_settings(config, model_type)
    if heads := classification_heads_of(model):
        raise UserError(
            f"--format=hf has no classification heads such as {next(iter(heads))!r}; export the "
            "model it was fine-tuned from, or leave out --format=hf"
        )
    table = NAMES[model_type]
    mappings = list(names.mappings(table, config))
    state = state_from_params(arrays_of(model), mappings)
    if model_type in ("bert", "electra", "roformer"):
        # `transformers` always adds a segment embedding; zeros have no effect.
        state.setdefault(names.SEGMENTS, np.zeros((1, config.word_size), np.float32))
    if model_type == "roformer":
        state = array_layouts.to_roformer(state, config)
    if model_type == "eurobert":
        state = array_layouts.to_eurobert(state, table, config)
    of_heads = {mapping.name for mapping in mappings if mapping.path[0].endswith("_head")}
    prefixed = {
        name if name in of_heads else f"{table.prefix}{name}": array
        for name, array in state.items()
    }
    if model_type == "modernbert":
        return _settings_of_modernbert(config), prefixed
    if model_type == "eurobert":
        has_bias = any(name.endswith(".bias") for name in state)
        return _settings_of_eurobert(config, has_bias=has_bias), prefixed
    return _settings(config, model_type), prefixed


def architecture(config: ModelConfig, *, as_electra: bool = False) -> str:
    """The class of `transformers` that holds a model with this config."""
    if config.replaced_token_head:
        return "ElectraForPreTraining"
    if config.next_sentence_head:
        return "BertForPreTraining" if config.masked_word_head else "BertForNextSentencePrediction"
    classes: dict[ModelType, str] = {
        "bert": "Bert",
        "electra": "Electra",
        "eurobert": "EuroBert",
        "modernbert": "ModernBert",
        "roformer": "RoFormer",
    }
    of_type = classes[_model_type(config, as_electra=as_electra)]
    return f"{of_type}ForMaskedLM" if config.masked_word_head else f"{of_type}Model"


def _model_type(config: ModelConfig, *, as_electra: bool) -> ModelType:
    """A model that detects replaced tokens is an ELECTRA; RoPE is in one of three blocks."""
    if as_electra or config.replaced_token_head:
        return "electra"
    if config.position.relative == "rope":
        if config.pre_layer_norm and config.norm == "rms_norm":
            return "eurobert"
        return "modernbert" if config.pre_layer_norm else "roformer"
    return "bert"


def _activation(config: ModelConfig) -> str:
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)


def _settings_of_modernbert(config: ModelConfig) -> dict[str, Any]:
    options, eps = config.position.options, config.layer_norm_eps
    base = float(options.get("rope_base", 10_000.0))
    bases = {
        "full_attention": base,
        "sliding_attention": float(options.get("rope_local_base", 0.0)) or base,
    }
    return {
        "architectures": [architecture(config)],
        "model_type": "modernbert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_size,
        "hidden_activation": _activation(config),
        "max_position_embeddings": config.position.max_length,
        "norm_eps": eps,
        "norm_bias": config.norm_bias,
        "attention_bias": config.linear_bias,
        "mlp_bias": config.linear_bias,
        "classifier_bias": config.linear_bias,
        "classifier_activation": _activation(config),
        "decoder_bias": True,
        "local_attention": config.attention_window or 128,
        "layer_types": [
            "sliding_attention" if window else "full_attention" for window in config.windows
        ],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
        },
        # Files of earlier versions of `transformers` have these instead of the two above.
        "global_attn_every_n_layers": config.attention_global_every
        if config.attention_window
        else 1,
        "global_rope_theta": bases["full_attention"],
        "local_rope_theta": bases["sliding_attention"],
        "embedding_dropout": config.dropout,
        "mlp_dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "classifier_dropout": config.classifier_dropout,
        "pad_token_id": config.pad_id,
        "sep_token_id": config.sep_id,
        "eos_token_id": config.sep_id,
        "bos_token_id": None,
        "cls_token_id": None,
        "tie_word_embeddings": not config.output_embedding_size,
    }


def _settings_of_eurobert(config: ModelConfig, *, has_bias: bool) -> dict[str, Any]:
    base = float(config.position.options.get("rope_base", 10_000.0))
    return {
        "architectures": [architecture(config)],
        "model_type": "eurobert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_heads,
        "intermediate_size": config.mlp_size,
        "hidden_act": _activation(config),
        "max_position_embeddings": config.position.max_length,
        "rms_norm_eps": config.layer_norm_eps,
        "attention_bias": has_bias,
        "mlp_bias": has_bias,
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
        # Files of earlier versions of `transformers` have this instead.
        "rope_theta": base,
        "attention_dropout": config.attention_dropout,
        # Theirs has no other dropout; these two are for `load`.
        "hidden_dropout_prob": config.dropout,
        "classifier_dropout": config.classifier_dropout,
        "pad_token_id": config.pad_id,
        "eos_token_id": config.sep_id,
        "bos_token_id": None,
        "tie_word_embeddings": not config.output_embedding_size,
    }


def _settings(config: ModelConfig, model_type: ModelType) -> dict[str, Any]:
    own: dict[ModelType, dict[str, Any]] = {
        "electra": {"embedding_size": config.word_size},
        "roformer": {"embedding_size": config.word_size, "rotary_value": False},
    }
    return {
        "architectures": [architecture(config, as_electra=model_type == "electra")],
        "model_type": model_type,
        **own.get(model_type, {}),
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_size,
        "hidden_act": _activation(config),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "classifier_dropout": config.classifier_dropout,
        "max_position_embeddings": config.position.max_length,
        "type_vocab_size": max(config.segments, 1),
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": config.pad_id,
        "tie_word_embeddings": True,
    }


def _check_settings(config: ModelConfig, model_type: ModelType) -> None:
    position = config.position
    has_rope = model_type in ("eurobert", "modernbert", "roformer")
    is_eurobert = model_type == "eurobert"
    required: dict[str, Any] = {
        "position.absolute": "none" if has_rope else "added",
        "position.relative": "rope" if has_rope else "none",
        "position.untie_cls": False,
        "model.embedding_norm": not is_eurobert,
        "model.segment_attention": False,
        "model.cls_last": False,
        "model.share_layers": False,
        "model.norm": "rms_norm" if is_eurobert else "layer_norm",
        "model.query_key_norm": False,
        "model.masked_word_transform": not is_eurobert,
        "model.mask_dropout": 0.0,
    }
    if has_rope:
        required |= {
            "position.options.rope_share": 1.0,
            "position.options.rope_precision": "float32",
            "model.pooler": False,
            "model.replaced_token_head": False,
        }
    if model_type in ("eurobert", "modernbert"):
        what = "EuroBERT" if is_eurobert else "RoPE in the block of configs/modern_rope.py"
        required |= {
            "model.embedding_size": 0,
            "model.segments": 0,
            "model.pre_layer_norm": True,
            "model.first_attention_norm": is_eurobert,
            "model.gated_mlp": True,
        }
        if is_eurobert:
            required["model.attention_window"] = 0
        elif config.attention_window and not config.attention_global_every:
            required["model.attention_global_every"] = 3
        if config.output_embedding_size:
            required["model.output_embedding_size"] = config.hidden_size
    else:
        what = "RoPE in BERT's block" if has_rope else "BERT-A"
        required |= {
            "model.pre_layer_norm": False,
            "model.norm_bias": True,
            "model.linear_bias": True,
            "model.gated_mlp": False,
            "model.attention_window": 0,
            "model.output_embedding_size": 0,
        }
        if model_type == "bert":
            required["model.embedding_size"] = 0
        if model_type == "roformer":
            required["position.options.rope_base"] = 10_000.0
        if model_type == "electra":
            required["model.pooler"] = False
            if config.masked_word_head:  # `transformers` uses the exact GELU in this head
                required["model.activation"] = "gelu"
    values = {
        **{f"model.{name}": value for name, value in vars(config).items()},
        **{f"position.{name}": value for name, value in vars(position).items()},
        "position.options.rope_base": position.options.get("rope_base", 10_000.0),
        "position.options.rope_share": position.options.get("rope_share", 1.0),
        "position.options.rope_precision": position.options.get("rope_precision", "float32"),
    }
    for name, expected in required.items():
        if values[name] != expected:
            raise UserError(
                "Hugging Face's format holds BERT-A and RoPE in the block of BERT, ModernBERT or "
                f"EuroBERT; for {what} {name}={values[name]!r} should be {expected!r}"
            )

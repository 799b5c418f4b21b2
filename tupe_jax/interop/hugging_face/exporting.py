"""BERT-A for Hugging Face's `transformers`: the one of our encoders that it holds exactly."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.hugging_face import files, names
from tupe_jax.interop.hugging_face.settings import ACTIVATIONS
from tupe_jax.interop.hugging_face.tokenizer import TOKENIZER, TOKENIZER_SETTINGS
from tupe_jax.interop.model_folder import VOCABULARY, vocabulary_name
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import Array, arrays_of, classification_heads_of
from tupe_jax.utils.errors import UserError


def write_files(model: MaskedLM, vocabulary: bytes | None, folder: Path) -> None:
    """Write config, weights and the vocabulary (its file's content) to a folder that is there.

    `BertForMaskedLM.from_pretrained` reads the first two. An imported vocabulary is a tokenizer
    again there; our own lies beside them as it is, for ourselves.
    """
    config, state = to_state_dict(model)
    if vocabulary is not None:
        _write_vocabulary(vocabulary, folder)
    _write_json(folder / files.SETTINGS, config)
    safetensors.numpy.save_file(state, folder / files.WEIGHTS, metadata={"format": "pt"})


def _write_vocabulary(vocabulary: bytes, folder: Path) -> None:
    if vocabulary_name(vocabulary) == VOCABULARY:
        (folder / VOCABULARY).write_bytes(vocabulary)
        return
    saved = json.loads(vocabulary)
    _write_json(folder / TOKENIZER_SETTINGS, _tokenizer_settings(**saved))
    _write_json(folder / TOKENIZER, saved["tokenizer"])


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")


def _tokenizer_settings(
    tokenizer: Mapping[str, Any], special: Mapping[str, int], **_: Any
) -> dict[str, Any]:
    """What `BertTokenizer` asks for beside the pieces: it makes a normalizer of its own."""
    normalizer = tokenizer["normalizer"] or {}
    kinds = (tokenizer["model"]["type"], normalizer.get("type"))
    if kinds != ("WordPiece", "BertNormalizer"):
        raise UserError(
            "Hugging Face's BERT reads with WordPiece and BertNormalizer, this model with "
            f"{' and '.join(map(str, kinds))}: export it without --format=hf"
        )
    written = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        **{name.replace("_id", "_token"): written[number] for name, number in special.items()},
    }


def to_state_dict(model: MaskedLM) -> tuple[dict[str, Any], dict[str, Array]]:
    """The content of `config.json`, and the arrays by the names of `BertForMaskedLM`."""
    config = model.config
    _check_is_bert(config)
    if heads := classification_heads_of(model):
        raise UserError(
            f"the head {next(iter(heads))!r} has no place there: export the model it was "
            "fine-tuned from, or leave out --format=hf"
        )
    table, arrays = names.BERT, arrays_of(model)
    state = {place.name: place.read(arrays) for place in names.places(table, config)}
    # There is always a segment there, and nothing may come of it.
    state.setdefault(names.SEGMENTS, np.zeros((1, config.hidden_size), np.float32))
    whole = {
        name if name.startswith("cls.") else f"{table.prefix}{name}": array
        for name, array in state.items()
    }
    return _settings(config), whole


def _settings(config: ModelConfig) -> dict[str, Any]:
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    return {
        "architectures": ["BertForMaskedLM" if config.masked_word_head else "BertModel"],
        "model_type": "bert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_size,
        "hidden_act": activation,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "classifier_dropout": config.classifier_dropout,
        "max_position_embeddings": config.position.max_length,
        "type_vocab_size": max(config.segments, 1),
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": config.pad_id,
        "tie_word_embeddings": True,
    }


def _check_is_bert(config: ModelConfig) -> None:
    position = config.position
    odd = {
        "position.absolute": (position.absolute, "added"),
        "position.relative": (position.relative, "none"),
        "position.untie_cls": (position.untie_cls, False),
        "model.embedding_size": (config.embedding_size, 0),
        "model.embedding_norm": (config.embedding_norm, True),
        "model.segment_attention": (config.segment_attention, False),
        "model.cls_last": (config.cls_last, False),
        "model.share_layers": (config.share_layers, False),
        "model.pre_layer_norm": (config.pre_layer_norm, False),
    }
    for name, (value, wanted) in odd.items():
        if value != wanted:
            raise UserError(
                f"Hugging Face's format holds BERT-A only: {name}={value!r} should be {wanted!r}"
            )

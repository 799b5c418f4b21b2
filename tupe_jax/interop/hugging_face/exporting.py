"""Export BERT-A, also as ELECTRA: `transformers` has no other of our encodings."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from tupe_jax.config.schema import ModelConfig
from tupe_jax.interop.hugging_face import files, names
from tupe_jax.interop.hugging_face.settings import ACTIVATIONS
from tupe_jax.interop.hugging_face.tokenizer import TOKENIZER, TOKENIZER_SETTINGS
from tupe_jax.interop.model_folder import SENTENCEPIECE_TOKENIZER, tokenizer_file_name
from tupe_jax.interop.param_mapping import state_from_params
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import Array, arrays_of, classification_heads_of
from tupe_jax.utils.errors import UserError

GENERATOR_FOLDER = "generator"


def write_files(
    model: MaskedLM,
    tokenizer: bytes | None,
    folder: pathlib.Path,
    generator: MaskedLM | None = None,
) -> None:
    """Write config, weights and the content of a tokenizer's file to an existing folder.

    `BertForMaskedLM.from_pretrained` reads the config and the weights; those of a model with a head
    for next sentences `BertForPreTraining`, those of a discriminator
    `ElectraForPreTraining`, and those of its generator, in a folder inside, `ElectraForMaskedLM`.
    An imported tokenizer is written in Hugging Face's format. A SentencePiece model is copied; only
    tupe_jax reads it.
    """
    _write(*to_state_dict(model), tokenizer, folder)
    if generator is not None:
        inside = folder / GENERATOR_FOLDER
        inside.mkdir()
        _write(*to_state_dict(generator, as_electra=True), tokenizer, inside)


def _write(
    config: Mapping[str, Any],
    state: dict[str, Array],
    tokenizer: bytes | None,
    folder: pathlib.Path,
) -> None:
    if tokenizer is not None:
        _write_tokenizer(tokenizer, folder)
    _write_json(folder / files.CONFIG, config)
    safetensors.numpy.save_file(state, folder / files.WEIGHTS, metadata={"format": "pt"})


def _write_tokenizer(tokenizer: bytes, folder: pathlib.Path) -> None:
    if tokenizer_file_name(tokenizer) == SENTENCEPIECE_TOKENIZER:
        (folder / SENTENCEPIECE_TOKENIZER).write_bytes(tokenizer)
        return
    saved = json.loads(tokenizer)
    _write_json(folder / TOKENIZER_SETTINGS, _tokenizer_settings(**saved))
    _write_json(folder / TOKENIZER, saved["tokenizer"])


def _write_json(file: pathlib.Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")


def _tokenizer_settings(
    tokenizer: Mapping[str, Any], special: Mapping[str, int], **_: Any
) -> dict[str, Any]:
    """The settings from which `BertTokenizer` builds its normalizer."""
    normalizer = tokenizer["normalizer"] or {}
    kinds = (tokenizer["model"]["type"], normalizer.get("type"))
    if kinds != ("WordPiece", "BertNormalizer"):
        raise UserError(
            "Hugging Face's BERT tokenizes with WordPiece and BertNormalizer, this model with "
            f"{' and '.join(map(str, kinds))}; export it without --format=hf"
        )
    written = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        **{name.replace("_id", "_token"): written[number] for name, number in special.items()},
    }


def to_state_dict(
    model: MaskedLM, *, as_electra: bool = False
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The content of `config.json`, and the state dict of a model of BERT or of ELECTRA.

    A model that detects replaced tokens is one of ELECTRA.
    """
    config = model.config
    as_electra |= config.replaced_token_head
    _check_settings(config, as_electra=as_electra)
    if heads := classification_heads_of(model):
        raise UserError(
            f"--format=hf has no classification heads such as {next(iter(heads))!r}; export the "
            "model it was fine-tuned from, or leave out --format=hf"
        )
    table = names.ELECTRA if as_electra else names.BERT
    mappings = list(names.mappings(table, config))
    state = state_from_params(arrays_of(model), mappings)
    # Theirs always adds a segment embedding; zeros change nothing.
    state.setdefault(names.SEGMENTS, np.zeros((1, config.word_size), np.float32))
    of_heads = {mapping.name for mapping in mappings if mapping.path[0].endswith("_head")}
    prefixed = {
        name if name in of_heads else f"{table.prefix}{name}": array
        for name, array in state.items()
    }
    return _settings(config, as_electra=as_electra), prefixed


def architecture(config: ModelConfig, *, as_electra: bool = False) -> str:
    """The class of `transformers` that holds a model with this config."""
    if config.replaced_token_head:
        return "ElectraForPreTraining"
    if config.next_sentence_head:
        return "BertForPreTraining" if config.masked_word_head else "BertForNextSentencePrediction"
    kind = "Electra" if as_electra else "Bert"
    return f"{kind}ForMaskedLM" if config.masked_word_head else f"{kind}Model"


def _settings(config: ModelConfig, *, as_electra: bool) -> dict[str, Any]:
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    electra = {"model_type": "electra", "embedding_size": config.word_size}
    return {
        "architectures": [architecture(config, as_electra=as_electra)],
        **(electra if as_electra else {"model_type": "bert"}),
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


def _check_settings(config: ModelConfig, *, as_electra: bool) -> None:
    position = config.position
    required: dict[str, tuple[object, object]] = {
        "position.absolute": (position.absolute, "added"),
        "position.relative": (position.relative, "none"),
        "position.untie_cls": (position.untie_cls, False),
        "model.embedding_norm": (config.embedding_norm, True),
        "model.segment_attention": (config.segment_attention, False),
        "model.cls_last": (config.cls_last, False),
        "model.share_layers": (config.share_layers, False),
        "model.pre_layer_norm": (config.pre_layer_norm, False),
    }
    if not as_electra:
        required["model.embedding_size"] = (config.embedding_size, 0)
    else:
        required["model.pooler"] = (config.pooler, False)
        if config.masked_word_head:  # theirs has the exact GELU in this head
            required["model.activation"] = (config.activation, "gelu")
    for name, (value, expected) in required.items():
        if value != expected:
            raise UserError(
                f"Hugging Face's format holds BERT-A only: {name}={value!r} should be {expected!r}"
            )

"""Write the tokenizer of an imported model, so that `transformers` gives the same ids."""

import dataclasses
import json
from typing import Any

from tupe_jax.interop.hugging_face.sentencepiece_layout import template
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.hugging_face import library
from tupe_jax.utils.errors import UserError


def tokenizer_files(
    tokenizer: Tokenizer, longest: int, *, has_segments: bool, has_bos: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of `tokenizer.json` and of `tokenizer_config.json`.

    `has_bos`: the model type calls [CLS] and [SEP] also bos_token and eos_token.
    """
    if tokenizer.cls_last:
        raise UserError(
            "the models of --format=hf begin a sequence with [CLS], but this model's tokenizer "
            "ends it with [CLS]; export it without --format=hf"
        )
    saved: dict[str, Any] = json.loads(tokenizer.content)["tokenizer"]
    library_tokenizer = library().Tokenizer.from_str(json.dumps(saved))
    special = {
        name.removesuffix("_id"): library_tokenizer.id_to_token(number)
        for name, number in dataclasses.asdict(tokenizer.special).items()
        if number is not None
    }
    if has_bos:
        special |= {"bos": special["cls"], "eos": special["sep"]}
    segments = ["token_type_ids"] if has_segments else []
    settings = {
        "model_max_length": longest,
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        **{f"{name}_token": text for name, text in special.items()},
    }
    if _is_of_bert(tokenizer, saved):
        return saved, {**_settings_of_bert(saved["normalizer"]), **settings}
    if not library_tokenizer.num_special_tokens_to_add(is_pair=False):
        # Vocabulary files of older formats do not say where special tokens go.
        saved = {**saved, "post_processor": _post_processor(tokenizer, saved, special)}
    return saved, {"tokenizer_class": "PreTrainedTokenizerFast", **settings}


def _is_of_bert(tokenizer: Tokenizer, saved: dict[str, Any]) -> bool:
    """Whether `BertTokenizer`, which has a normalizer and a template of its own, is the same."""
    kinds = (saved["model"]["type"], (saved["normalizer"] or {}).get("type"))
    return kinds == ("WordPiece", "BertNormalizer") and tokenizer.pair_separators == 1


def _settings_of_bert(normalizer: dict[str, Any]) -> dict[str, Any]:
    """The settings from which `BertTokenizer` builds its normalizer."""
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    }


def _post_processor(
    tokenizer: Tokenizer, saved: dict[str, Any], special: dict[str, str]
) -> dict[str, Any]:
    """[CLS] and [SEP] after what the file has, such as the offsets of byte-level BPE."""
    ids = {special["cls"]: tokenizer.special.cls_id, special["sep"]: tokenizer.special.sep_id}
    framed = template(tokenizer, special["cls"], special["sep"], ids)
    own = saved["post_processor"]
    return framed if own is None else {"type": "Sequence", "processors": [own, framed]}

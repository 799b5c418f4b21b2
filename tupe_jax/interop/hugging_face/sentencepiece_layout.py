"""Write the tokenizer of a model trained here as a `tokenizer.json` of the `tokenizers` library.

SentencePiece merges the pair of tokens whose union has the highest score, the leftmost of several.
The library merges the pair that comes first in a list, here in the order of those scores.
"""

import base64
import importlib
from typing import Any

from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.normalization import CONTROL, PLAIN
from tupe_jax.tokenizers.sentencepiece import SPECIAL_TOKENS, SentencePieceTokenizer

_SPACE = "\u2581"


def tokenizer_json(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """The content of `tokenizer.json`."""
    model = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    model.ParseFromString(tokenizer.content)
    ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
    learned = [piece for piece in model.pieces if piece.type == piece.NORMAL]
    merges = [
        f"{piece.piece[:n]} {piece.piece[n:]}"
        for piece in sorted(learned, key=lambda piece: -piece.score)
        for n in range(1, len(piece.piece))
        if piece.piece[:n] in ids and piece.piece[n:] in ids
    ]
    _, cls, sep, _, unk = SPECIAL_TOKENS
    metaspace = {
        "type": "Metaspace",
        "replacement": _SPACE,
        "prepend_scheme": "always",
        "split": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": ids[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in SPECIAL_TOKENS
        ],
        "normalizer": _normalizer(tokenizer, model.normalizer_spec.precompiled_charsmap),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace],
        },
        "post_processor": template(tokenizer, cls, sep, ids),
        "decoder": metaspace,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unk,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    }


def tokenizer_settings(longest: int, *, has_segments: bool) -> dict[str, Any]:
    """The content of `tokenizer_config.json`; a model without segments is given none."""
    names = ("pad", "cls", "sep", "mask", "unk")
    segments = ["token_type_ids"] if has_segments else []
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        **{f"{name}_token": token for name, token in zip(names, SPECIAL_TOKENS, strict=True)},
    }


def _normalizer(tokenizer: SentencePieceTokenizer, characters: bytes) -> dict[str, Any]:
    """`normalise_punctuation`, if the tokenizer has it, then SentencePiece's own table."""
    steps: list[dict[str, Any]] = []

    def replace(pattern: str, content: str) -> None:
        steps.append({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})

    if tokenizer.is_of_plain_text:
        steps.append({"type": "NFC"})
        for plain in dict.fromkeys(PLAIN.values()):
            marks = "".join(mark for mark, to in PLAIN.items() if to == plain)
            replace(f"[{marks}]", plain)
        replace(CONTROL, "")
        replace("``|''", '"')
    table = base64.b64encode(characters).decode()
    steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    return {"type": "Sequence", "normalizers": steps}


def template(tokenizer: Tokenizer, cls: str, sep: str, ids: dict[str, int]) -> dict[str, Any]:
    """[CLS] A [SEP], and as many [SEP] between the texts of a pair as the tokenizer has."""

    def special(token: str, kind: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": kind}}

    first = [special(cls, 0), {"Sequence": {"id": "A", "type_id": 0}}, special(sep, 0)]
    between = [special(sep, 1)] * (tokenizer.pair_separators - 1)
    second = [*between, {"Sequence": {"id": "B", "type_id": 1}}, special(sep, 1)]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *second],
        "special_tokens": {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (cls, sep)
        },
    }

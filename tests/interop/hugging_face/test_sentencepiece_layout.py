"""`transformers` reads the tokenizer of a model trained here, and gives the same tokens."""

import json

import numpy as np
import pytest
import transformers

from tests.tokenizers.test_hugging_face import AWKWARD
from tupe_jax.data.builtin import documents
from tupe_jax.data.labelled.encode import join
from tupe_jax.interop.hugging_face.sentencepiece_layout import tokenizer_json, tokenizer_settings
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece

# Ours reads the names of special tokens as letters, theirs as these tokens.
PLAIN = [text.replace("[MASK]", "mask").replace("[SEP]", "sep") for text in AWKWARD]
MORE = [
    "banana bananas anna aaaa xyzzy",
    "\u03a9\u03bc\u03ad\u03b3\u03b1 stra\u00dfe \ufb03",
    "\u201cquoted\u201d \u2014 \u2018it\u2019s\u2019 \u2026  \t tabs",
]


@pytest.fixture(scope="module", params=["corpus", "typographic"])
def both(request, tmp_path_factory):
    """Ours and theirs: of normalized text, and of text with typographic marks."""
    folder = tmp_path_factory.mktemp(request.param)
    lines = [sentence.text for d in documents(0, 0, 60) for sentence in d.sentences]
    if request.param == "typographic":
        lines += [*PLAIN, *MORE] * 20
    ours = SentencePieceTokenizer.parse(train_sentencepiece(lines, 400), folder)
    assert ours.is_of_plain_text == (request.param == "corpus")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(ours)))
    settings = tokenizer_settings(64, has_segments=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return ours, transformers.AutoTokenizer.from_pretrained(folder)


def test_the_tokens_of_texts_are_the_same(both):
    ours, theirs = both
    sentences = [sentence.text for d in documents(7, 0, 30) for sentence in d.sentences]
    for text in [*PLAIN, *MORE, *sentences]:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), repr(text)


def test_sequences_special_tokens_and_masks(both):
    ours, theirs = both
    first, second = MORE[:2]
    single, pair = theirs(first), theirs(first, second)
    assert set(single) == {"input_ids", "attention_mask"}
    assert single["input_ids"] == join(ours, ours.encode(first), None, 500)
    assert pair["input_ids"] == join(ours, ours.encode(first), ours.encode(second), 500)
    assert (theirs.pad_token_id, theirs.mask_token_id) == (0, 3)
    assert np.isin(theirs.mask_token_id, theirs("a [MASK] boat")["input_ids"])

"""The SentencePiece tokenizer: fixed special tokens, lower case, reproducible, no TensorFlow."""

import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece

from tests.data.small_corpus import documents
from tupe_jax.tokenizers.sentencepiece import (
    CLS_ID,
    MASK_ID,
    PAD_ID,
    SEP_ID,
    UNK_ID,
    SentencePieceTokenizer,
    train_sentencepiece,
)
from tupe_jax.utils.errors import UserError


def lines() -> list[str]:
    return [line for document in documents(300) for line in document.split("\n")]


def test_special_tokens_have_fixed_ids(tokenizer: SentencePieceTokenizer) -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.path))
    ids = {name: model.piece_to_id(name) for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")}
    assert ids == {"[PAD]": PAD_ID, "[CLS]": CLS_ID, "[SEP]": SEP_ID, "[MASK]": MASK_ID}
    assert model.id_to_piece(UNK_ID) == "[UNK]"
    assert (PAD_ID, CLS_ID, SEP_ID, MASK_ID, UNK_ID) == (0, 1, 2, 3, 4)
    assert tokenizer.size == 200


def test_no_text_is_encoded_to_a_special_token(tokenizer: SentencePieceTokenizer) -> None:
    ids = tokenizer.encode("[PAD] [CLS] [SEP] [MASK]")
    assert not {PAD_ID, CLS_ID, SEP_ID, MASK_ID} & set(ids)


def test_case_and_unicode_forms_are_folded(tokenizer: SentencePieceTokenizer) -> None:
    assert tokenizer.encode("KALO Miter") == tokenizer.encode("kalo miter")
    assert tokenizer.encode("ｋａｌｏ") == tokenizer.encode("kalo")  # noqa: RUF001
    assert tokenizer.decode(tokenizer.encode("KALO miter.")) == "kalo miter."


TYPESET = "It\u2019s \u201cfine\u201d in 1990\u20131995 \u2014 really\u2026"
PLAIN = 'It\'s "fine" in 1990-1995 - really...'


def test_marks_are_normalized_like_the_corpus(tokenizer: SentencePieceTokenizer) -> None:
    assert tokenizer.encode(TYPESET) == tokenizer.encode(PLAIN)
    assert UNK_ID not in tokenizer.encode(TYPESET)
    assert tokenizer.encode("``fine''") == tokenizer.encode('"fine"')


def test_a_tokenizer_with_typographic_marks_keeps_them(tmp_path: Path) -> None:
    content = train_sentencepiece([*lines(), *[TYPESET] * 50], 200)
    known = SentencePieceTokenizer.parse(content, tmp_path / "vocabulary.model")
    assert known.encode(TYPESET) != known.encode(PLAIN)
    assert "\u201c" in known.decode(known.encode(TYPESET))


def test_all_letters_and_digits_are_known_even_if_the_corpus_lacks_them(
    tokenizer: SentencePieceTokenizer,
) -> None:
    assert UNK_ID not in tokenizer.encode("the quick brown fox jumps over the lazy dog 0123456789")
    assert UNK_ID in tokenizer.encode("\N{SNOWMAN}")


def test_lines_are_encoded_as_one_by_one(tokenizer: SentencePieceTokenizer) -> None:
    some = lines()[:20]
    assert tokenizer.encode_lines(some) == [tokenizer.encode(line) for line in some]


def test_the_same_text_gives_the_same_bytes() -> None:
    model = train_sentencepiece(lines(), 150)
    assert train_sentencepiece(lines(), 150) == model
    assert train_sentencepiece(lines()[:-50], 150) != model


def test_a_size_that_is_too_large_for_the_text_is_an_error_naming_the_largest() -> None:
    with pytest.raises(UserError, match=r"100000 .*--size=") as error:
        train_sentencepiece(lines(), 100_000)
    largest = int(str(error.value).split("--size=")[1].split()[0])
    assert train_sentencepiece(lines(), largest)
    with pytest.raises(UserError, match=str(largest + 1)):
        train_sentencepiece(lines(), largest + 1)


def test_a_size_too_small_for_the_characters_is_an_error() -> None:
    with pytest.raises(UserError, match=r"\b20\b"):
        train_sentencepiece(lines(), 20)


def test_no_text_is_an_error() -> None:
    with pytest.raises(UserError, match="no text"):
        train_sentencepiece(["", ""], 100)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.model"):
        SentencePieceTokenizer.load(tmp_path / "absent.model")
    (tmp_path / "text.model").write_text("no model")
    with pytest.raises(UserError, match=r"text\.model: .*SentencePiece"):
        SentencePieceTokenizer.load(tmp_path / "text.model")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()),
        model_prefix=str(tmp_path / "other"),
        vocab_size=100,
        minloglevel=2,
    )
    with pytest.raises(UserError, match=r"other\.model: .*<unk> <s> </s>"):
        SentencePieceTokenizer.load(tmp_path / "other.model")


def test_it_works_without_tensorflow(tokenizer: SentencePieceTokenizer) -> None:
    code = (
        "import sys; from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer; "
        f"SentencePieceTokenizer.load({str(tokenizer.path)!r}).encode('kalo'); "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

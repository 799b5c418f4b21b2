"""A tokenizer for the documents of `small_corpus`."""

import pytest

from tests.data.small_corpus import documents
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    lines = (line for document in documents(500) for line in document.split("\n"))
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    path.write_bytes(train_sentencepiece(lines, 200))
    return SentencePieceTokenizer.load(path)

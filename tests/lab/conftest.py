"""What the tests of the laboratory share."""

import pytest

from tupe_jax.data.builtin import documents
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece

PIECES = 300


@pytest.fixture(scope="session")
def vocabulary_file(tmp_path_factory):
    """Of built-in text."""
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    lines = [sentence.text for d in documents(0, 0, 100) for sentence in d.sentences]
    path.write_bytes(train_sentencepiece(lines, PIECES))
    return path


@pytest.fixture(scope="session")
def vocabulary(vocabulary_file):
    return SentencePieceTokenizer.load(vocabulary_file)

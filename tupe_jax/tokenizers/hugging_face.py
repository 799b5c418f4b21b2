"""The vocabulary of an imported model: a tokenizer of the `tokenizers` library. No TensorFlow."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError

_CONTINUED = "##"
_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class HuggingFaceTokenizer:
    """WordPiece, byte-level BPE or unigram pieces: text to ids and back, without special ids.

    As in the models' own code, a special piece that is written in a text is that piece.
    """

    path: Path
    special: SpecialTokens
    pair_separators: int
    cls_last: bool
    """[CLS] ends a row instead of beginning it."""
    size: int
    """Rows of the model's embedding: some models have more than there are pieces."""
    _tokenizer: Any = field(repr=False, compare=False)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> "HuggingFaceTokenizer":
        """The vocabulary in what `content` returned, which was kept at `path`."""
        tokenizers = library()
        try:
            saved = json.loads(content)
            return cls(
                path,
                SpecialTokens(**saved["special"]),
                saved["pair_separators"],
                saved.get("cls_last", False),
                saved["size"],
                tokenizers.Tokenizer.from_str(json.dumps(saved["tokenizer"])),
            )
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{path}: not the vocabulary of an imported model: {error}") from None

    @property
    def content(self) -> bytes:
        """All of it, to be kept in a file."""
        saved = {
            "special": dataclasses.asdict(self.special),
            "pair_separators": self.pair_separators,
            "cls_last": self.cls_last,
            "size": self.size,
            "tokenizer": json.loads(self._tokenizer.to_str()),
        }
        return json.dumps(saved, ensure_ascii=False).encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @functools.cached_property
    def ordinary_ids(self) -> NDArray[np.int32]:
        """Of all pieces that are not special, nor kept free as BERT's `[unused7]`."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        special = {*self.special.ids, *(i for i, token in added if token.special)}
        pieces = self._tokenizer.get_vocab(with_added_tokens=True).items()
        return np.array(
            sorted(i for piece, i in pieces if i not in special and not _UNUSED.fullmatch(piece)),
            np.int32,
        )

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def starts_word(self, piece: int) -> bool:
        """Whether a word begins with this piece, by the mark of its kind of pieces."""
        written = str(self._tokenizer.id_to_token(piece))
        if isinstance(self._tokenizer.model, library().models.WordPiece):
            return not written.startswith(_CONTINUED)
        return written.startswith(("\u2581", "\u0120"))  # of unigrams; of bytes, for a space

    @functools.cached_property
    def marks_every_word(self) -> bool:
        """Byte-level pieces mark the space before a word: the first of a text bears no mark."""
        return self.starts_word(self.encode("a")[0])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; special pieces leave no trace in it, nor does a space before it."""
        text = str(self._tokenizer.decode([int(i) for i in ids]))
        return text.removeprefix(_CONTINUED).removeprefix(" ")


Tokenizer = SentencePieceTokenizer | HuggingFaceTokenizer
"""What a trained model may read with."""


def library() -> Any:
    """The `tokenizers` library, which only imported models need."""
    try:
        import tokenizers
    except ImportError:
        raise UserError(
            "an imported model reads with the tokenizers library: "
            "pip install 'tupe_jax[hugging-face]'"
        ) from None
    return tokenizers

"""Tokenizers of imported models, which use the `tokenizers` library."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path

_CONTINUED = "##"
_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class HuggingFaceTokenizer:
    """A WordPiece, byte-level BPE or unigram tokenizer, or one of whole tokens (ESM).

    As in the models' own code, the name of a special token in a text is encoded to that token.
    """

    path: Path
    special: SpecialTokens
    pair_separators: int
    cls_last: bool
    """Whether [CLS] ends a sequence instead of beginning it."""
    size: int
    """The rows of the model's embedding table. Some models have more rows than tokens."""
    _tokenizer: Any = field(repr=False, compare=False)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> "HuggingFaceTokenizer":
        """Parse what `content` returned. The tokenizer keeps `path` for error messages."""
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
        except Exception as error:  # the library raises no more specific class
            raise UserError(f"{path}: not the tokenizer of an imported model: {error}") from None

    @property
    def content(self) -> bytes:
        """The tokenizer as the content of a file."""
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
        """The ids of all tokens but special and unused ones, such as BERT's `[unused7]`."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        special = {*self.special.ids, *(i for i, token in added if token.special)}
        tokens = self._tokenizer.get_vocab(with_added_tokens=True).items()
        return np.array(
            sorted(i for token, i in tokens if i not in special and not _UNUSED.fullmatch(token)),
            np.int32,
        )

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def starts_word(self, token_id: int) -> bool:
        """Return whether the token is marked as the start of a word."""
        token = str(self._tokenizer.id_to_token(token_id))
        if isinstance(self._tokenizer.model, library().models.WordPiece):
            return not token.startswith(_CONTINUED)
        return token.startswith(("\u2581", "\u0120"))  # unigram; byte-level BPE

    @functools.cached_property
    def marks_every_word(self) -> bool:
        """Whether the first token of a text is marked as the start of a word.

        Byte-level BPE marks the space before a word, which the first word of a text does not have.
        """
        return self.starts_word(self.encode("a")[0])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text without special tokens and without a leading space."""
        text = str(self._tokenizer.decode([int(i) for i in ids]))
        return text.removeprefix(_CONTINUED).removeprefix(" ")


def library() -> Any:
    """Return the `tokenizers` library, which only imported models need."""
    try:
        import tokenizers
    except ImportError:
        raise UserError(
            "imported models need the tokenizers library: pip install 'tupe_jax[hugging-face]'"
        ) from None
    return tokenizers

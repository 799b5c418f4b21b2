"""The interface of all tokenizers, and their special tokens."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tupe_jax.utils.paths import Path


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of special tokens. They are never masked and never replace another token."""

    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids, ascending."""
        ids = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        return tuple(sorted(ids if self.unk_id is None else ids | {self.unk_id}))


class Tokenizer(Protocol):
    """Converts text to token ids and back, without special tokens."""

    @property
    def path(self) -> Path:
        """The file that it was read from."""

    @property
    def content(self) -> bytes:
        """The tokenizer as the content of a file."""

    @property
    def sha256(self) -> str:
        """The hash of its content."""

    @property
    def size(self) -> int:
        """The vocabulary size."""

    @property
    def special(self) -> SpecialTokens: ...

    @property
    def pair_separators(self) -> int:
        """The number of [SEP] tokens between the texts of a pair."""

    @property
    def cls_last(self) -> bool:
        """Whether [CLS] ends a sequence instead of beginning it."""

    @property
    def ordinary_ids(self) -> NDArray[np.int32]:
        """The ids of all tokens that are not special, ascending."""

    @property
    def marks_every_word(self) -> bool:
        """Whether the first token of a text is marked as the start of a word."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids. Special tokens are left out."""

    def starts_word(self, token_id: int) -> bool:
        """Return whether the token is marked as the start of a word."""

"""The tokenizer of models trained here: lower-cased SentencePiece BPE with five special tokens.

The special tokens are SentencePiece *control* symbols: no text, not even "[MASK]", is encoded to
them, so a corpus cannot put a separator or a mask into a sequence.
"""

import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.tokenizers.normalization import has_plain_marks_only, normalise_punctuation
from tupe_jax.utils.errors import UserError, reading_failed, reason
from tupe_jax.utils.paths import Path, storage_path

PAD_ID, CLS_ID, SEP_ID, MASK_ID, UNK_ID = range(5)
SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
SPECIAL = SpecialTokens(PAD_ID, CLS_ID, SEP_ID, MASK_ID, UNK_ID)
PAIR_SEPARATORS = 2
"""The number of [SEP] tokens between the texts of a pair."""

DEFAULT_SIZE = 32_768
DEFAULT_LINES = 2_000_000

# These characters are in every vocabulary, however rare. Others are included if they are among the
# most frequent ones that make up _COVERAGE of the text. On the web, the rest is thousands of
# characters of other scripts, each of which would cost a token.
_REQUIRED_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"()-"
_COVERAGE = 0.9995
# SentencePiece silently skips longer lines. Its default of 4,192 bytes would drop paragraphs.
_LONGEST_LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class SentencePieceTokenizer:
    """A trained SentencePiece model."""

    path: Path
    sha256: str
    content: bytes = field(repr=False, compare=False)
    """The bytes of its file."""
    _model: Any = field(repr=False, compare=False)
    special: SpecialTokens = SPECIAL
    pair_separators: int = PAIR_SEPARATORS
    cls_last: bool = False
    marks_every_word: bool = True
    is_of_plain_text: bool = False
    """Whether no token has a typographic quote, dash or ellipsis. If so, the corpus was normalized,
    and `encode` normalizes the text too, because these characters would be unknown."""

    @classmethod
    def load(cls, path: Path | str) -> "SentencePieceTokenizer":
        path = storage_path(path)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise reading_failed(
                f"{path}: cannot read the tokenizer ({reason(error)}); create one with "
                "`tupe vocab`",
                error,
            ) from None
        return cls.parse(content, path)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> "SentencePieceTokenizer":
        """Parse the content of a file. The tokenizer keeps `path` for error messages."""
        model = sentencepiece.SentencePieceProcessor()
        try:
            model.LoadFromSerializedProto(content)
        except RuntimeError:
            raise UserError(
                f"{path}: not a SentencePiece model; create one with `tupe vocab`"
            ) from None
        first = tuple(model.IdToPiece(i) for i in range(min(len(SPECIAL_TOKENS), len(model))))
        if first != SPECIAL_TOKENS:
            raise UserError(
                f"{path}: its first tokens are {' '.join(first)}, but must be "
                f"{' '.join(SPECIAL_TOKENS)}; train it with `tupe vocab`"
            )
        all_tokens = "".join(model.IdToPiece(i) for i in range(len(model)))
        return cls(
            path,
            hashlib.sha256(content).hexdigest(),
            content,
            model,
            is_of_plain_text=has_plain_marks_only(all_tokens),
        )

    @property
    def size(self) -> int:
        return len(self._model)

    @property
    def ordinary_ids(self) -> NDArray[np.int32]:
        """The ids of all tokens that are not special."""
        return np.arange(len(SPECIAL_TOKENS), self.size, dtype=np.int32)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, after normalizing its punctuation like the corpus."""
        return list(
            self._model.EncodeAsIds(normalise_punctuation(text) if self.is_of_plain_text else text)
        )

    def encode_lines(self, lines: list[str]) -> list[list[int]]:
        """Encode many lines of a corpus in one call, on this thread, without normalizing them."""
        return list(self._model.Encode(lines, num_threads=1))

    def token(self, id: int) -> str:
        """Return a token as it is written in the SentencePiece model."""
        return str(self._model.IdToPiece(id))

    def starts_word(self, token_id: int) -> bool:
        """Return whether the token is marked as the start of a word, by U+2581."""
        return self.token(token_id).startswith("\u2581")

    def word_starts(self) -> list[bool]:
        """Return `starts_word` of every token."""
        return [self.starts_word(token_id) for token_id in range(self.size)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text without [PAD], [CLS], [SEP] and [MASK]."""
        return str(self._model.DecodeIds([int(i) for i in ids]))


def train_sentencepiece(lines: Iterable[str], size: int) -> bytes:
    """Return a SentencePiece model of exactly `size` tokens.

    The same lines give the same bytes: SentencePiece uses one thread (the number is stored in the
    model) and does not shuffle or sample.
    """
    model = io.BytesIO()
    pad, cls, sep, mask, unk = SPECIAL_TOKENS
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_training_lines(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            # Unicode normal form KC, and case folding.
            normalization_rule_name="nmt_nfkc_cf",
            pad_id=PAD_ID,
            pad_piece=pad,
            bos_id=CLS_ID,
            bos_piece=cls,
            eos_id=SEP_ID,
            eos_piece=sep,
            unk_id=UNK_ID,
            unk_piece=unk,
            unk_surface=unk,
            control_symbols=[mask],  # gets the only free id, MASK_ID
            required_chars=_REQUIRED_CHARACTERS,
            character_coverage=_COVERAGE,
            max_sentence_length=_LONGEST_LINE_BYTES,
            shuffle_input_sentence=False,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _size_error(size, str(error)) or error from None
    return model.getvalue()


def _training_lines(lines: Iterable[str]) -> Iterable[str]:
    empty = True
    for line in lines:
        if line:
            empty = False
            yield line
    if empty:
        raise UserError("the corpus has no text to train a tokenizer on; add text to it")
    # SentencePiece aborts the process when a required character never occurs.
    yield " ".join(_REQUIRED_CHARACTERS)


def _size_error(size: int, message: str) -> UserError | None:
    """Return our error for SentencePiece's error about the size, which the user can fix."""
    if largest := re.search(r"size too high .*<= (\d+)", message):
        return UserError(
            f"{size} tokens are too many: this text allows at most {largest[1]}; "
            f"set --size={largest[1]} or less, or use more text"
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"{size} tokens are too few: the characters of this text and the special tokens need "
            f"{smallest[1]}; set --size={smallest[1]} or more"
        )
    return None

"""The vocabulary: lower-cased SentencePiece BPE with five fixed special pieces. No TensorFlow.

The special pieces are SentencePiece *control* symbols: no text, not even the text "[MASK]", is ever
encoded to them, so a corpus cannot smuggle a row border or a mask into a row.
"""

import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.tokenizers.normalization import has_plain_marks_only, normalise_punctuation
from tupe_jax.utils.errors import UserError

PAD_ID, CLS_ID, SEP_ID, MASK_ID, UNK_ID = range(5)
SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
SPECIAL = SpecialTokens(PAD_ID, CLS_ID, SEP_ID, MASK_ID, UNK_ID)
PAIR_SEPARATORS = 2
"""[SEP] between the texts of a pair."""

DEFAULT_SIZE = 32_768
DEFAULT_LINES = 2_000_000

# These are in every vocabulary, however rare. Other characters are there if they are among the most
# frequent ones that make up COVERAGE of the text: on the web the rest is thousands of characters of
# other scripts, each of which would cost a piece.
_REQUIRED_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"()-"
_COVERAGE = 0.9995
# SentencePiece silently skips longer lines; its own limit of 4,192 bytes would drop paragraphs.
_LONGEST_LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class SentencePieceTokenizer:
    """A trained SentencePiece model: text to ids and back, without special ids."""

    path: Path
    sha256: str
    content: bytes = field(repr=False, compare=False)
    """Of its file."""
    _model: Any = field(repr=False, compare=False)
    special: SpecialTokens = SPECIAL
    pair_separators: int = PAIR_SEPARATORS
    cls_last: bool = False
    marks_every_word: bool = True
    is_of_plain_text: bool = False
    """No piece has a typographic quote, dash or ellipsis: they would be unknown if not rewritten,
    as they were in the corpus."""

    @classmethod
    def load(cls, path: Path | str) -> "SentencePieceTokenizer":
        path = Path(path)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"{path}: cannot read the vocabulary ({error.strerror}); `tupe vocab` makes one"
            ) from None
        return cls.parse(content, path)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> "SentencePieceTokenizer":
        """The vocabulary in a file's content, which came from `path`."""
        model = sentencepiece.SentencePieceProcessor()
        try:
            model.LoadFromSerializedProto(content)
        except RuntimeError:
            raise UserError(f"{path}: not a SentencePiece model; `tupe vocab` makes one") from None
        first = tuple(model.IdToPiece(i) for i in range(min(len(SPECIAL_TOKENS), len(model))))
        if first != SPECIAL_TOKENS:
            raise UserError(
                f"{path}: its first pieces are {' '.join(first)}, but {' '.join(SPECIAL_TOKENS)} "
                "are needed; train it with `tupe vocab`"
            )
        pieces = "".join(model.IdToPiece(i) for i in range(len(model)))
        return cls(
            path,
            hashlib.sha256(content).hexdigest(),
            content,
            model,
            is_of_plain_text=has_plain_marks_only(pieces),
        )

    @property
    def size(self) -> int:
        return len(self._model)

    @property
    def ordinary_ids(self) -> NDArray[np.int32]:
        """Of all pieces that are not special."""
        return np.arange(len(SPECIAL_TOKENS), self.size, dtype=np.int32)

    def encode(self, text: str) -> list[int]:
        """The ids of a text of any origin: its marks are written as in the vocabulary's corpus."""
        return list(
            self._model.EncodeAsIds(normalise_punctuation(text) if self.is_of_plain_text else text)
        )

    def encode_lines(self, lines: list[str]) -> list[list[int]]:
        """Encode many lines of a corpus, cleaned or not, in one call, on this thread."""
        return list(self._model.Encode(lines, num_threads=1))

    def token(self, id: int) -> str:
        """A token as it is written in the SentencePiece model."""
        return str(self._model.IdToPiece(id))

    def starts_word(self, piece: int) -> bool:
        """Whether a word begins with this piece: SentencePiece marks those with U+2581."""
        return self.token(piece).startswith("\u2581")

    def word_starts(self) -> list[bool]:
        """The same of every piece."""
        return [self.starts_word(piece) for piece in range(self.size)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; [PAD], [CLS], [SEP] and [MASK] leave no trace in it."""
        return str(self._model.DecodeIds([int(i) for i in ids]))


def train_sentencepiece(lines: Iterable[str], size: int) -> bytes:
    """Return a SentencePiece model of exactly `size` pieces.

    The same lines give the same bytes: one thread (the number is stored in the model), no
    shuffling, no sampling inside SentencePiece.
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
            control_symbols=[mask],  # takes the one free id, MASK_ID
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
        raise UserError("the corpus holds no text, so no vocabulary can be made of it")
    # SentencePiece aborts the process when a required character never occurs.
    yield " ".join(_REQUIRED_CHARACTERS)


def _size_error(size: int, message: str) -> UserError | None:
    """Turn SentencePiece's complaint about the size, the one thing a user can mend, into ours."""
    if largest := re.search(r"size too high .*<= (\d+)", message):
        return UserError(
            f"{size} pieces are too many: this text gives at most {largest[1]}; "
            f"set --size={largest[1]} or less, or give more text"
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"{size} pieces are too few: the characters of this text and the special pieces alone "
            f"are {smallest[1]}; set a larger --size"
        )
    return None

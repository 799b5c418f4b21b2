"""The validation split and shares of a corpus, chosen by the text of each document."""

import hashlib
import re
import unicodedata

HELD_OUT_ONE_IN = 200

_NOT_WORD = re.compile(r"[\W_]+")
_ASCII_NOT_WORD = bytes(byte for byte in range(128) if not chr(byte).isalnum())


def fingerprint(text: str) -> int:
    """Return 64 bits, never zero, that depend only on the letters and digits of the text.

    Copies that differ in case, punctuation, spacing or the Unicode form of a letter (composed,
    decomposed, full-width) have the same fingerprint.
    """
    if text.isascii():  # same result as below, ten times as fast
        letters = text.lower().encode().translate(None, _ASCII_NOT_WORD)
    else:
        # Normalize again, because case folding may decompose letters.
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        letters = _NOT_WORD.sub("", folded).encode()
    digest = hashlib.blake2b(letters, digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def is_held_out(text: str) -> bool:
    """Return whether a document belongs to the validation split.

    This depends only on its letters and digits. So all copies are in the same split, and they stay
    there if the corpus grows or is sharded or cleaned in another way.
    """
    return fingerprint(text) % HELD_OUT_ONE_IN == 0


def is_in_share(share: float, text: str) -> bool:
    """Return whether a document belongs to a share of the corpus. Larger shares include smaller.

    It uses other bits than `is_held_out`, so it keeps the same share of both splits.
    """
    return (fingerprint(text) >> 32) < share * 2**32

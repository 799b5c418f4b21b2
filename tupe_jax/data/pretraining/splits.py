"""Which documents are held out for validation: a function of the document's text alone."""

import hashlib
import re
import unicodedata

HELD_OUT_ONE_IN = 200

_NOT_WORD = re.compile(r"[\W_]+")
_ASCII_NOT_WORD = bytes(byte for byte in range(128) if not chr(byte).isalnum())


def fingerprint(text: str) -> int:
    """Return 64 bits that depend on the letters and digits of the text alone.

    So copies that differ only in case, punctuation, spacing or the way Unicode writes a letter
    (composed, decomposed, full-width) count as the same text. Never zero.
    """
    if text.isascii():  # the same as below, ten times as fast
        letters = text.lower().encode().translate(None, _ASCII_NOT_WORD)
    else:
        # Once more after folding, which may decompose letters.
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        letters = _NOT_WORD.sub("", folded).encode()
    digest = hashlib.blake2b(letters, digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def is_held_out(text: str) -> bool:
    """Return whether a document belongs to `validation`.

    The choice is a function of the document's letters alone, so all copies of it are on the same
    side, and it stays there when the corpus grows, is sharded otherwise or is cleaned otherwise.
    """
    return fingerprint(text) % HELD_OUT_ONE_IN == 0


def is_in_share(share: float, text: str) -> bool:
    """Return whether a document belongs to a share of the corpus; larger shares hold smaller ones.

    Uses other bits than `is_held_out`, so that both sides are thinned alike.
    """
    return (fingerprint(text) >> 32) < share * 2**32

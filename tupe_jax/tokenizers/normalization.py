"""Normalize punctuation, both when cleaning a corpus and when encoding text."""

import re
import unicodedata
from collections.abc import Mapping

PLAIN: Mapping[str, str] = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u00b4\u02bc\u2032", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    "\u2026": "...",
    # Soft hyphens, zero-width characters and byte-order marks are invisible.
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
}
_TO_PLAIN = re.compile(f"[{''.join(PLAIN)}]")
CONTROL = r"[\x00-\x08\x0e-\x1b\x7f\ufffd]"
_CONTROL = re.compile(CONTROL)


def has_plain_marks_only(text: str) -> bool:
    """Return whether the text has no typographic mark that `normalise_punctuation` rewrites."""
    return _TO_PLAIN.search(text) is None


def normalise_punctuation(text: str) -> str:
    """Replace typographic quotes, dashes, ellipses and spaces; drop invisible characters."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        text = _TO_PLAIN.sub(lambda match: PLAIN[match[0]], text)
    # TeX and treebanks write quotation marks as `` and ''.
    text = _CONTROL.sub("", text).replace("``", '"').replace("''", '"')
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)

"""Cleaning of documents: pure functions of text, each with a name by which it is switched on.

A document is a string, one sentence or paragraph per line.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping

from tupe_jax.data.repeats import REPEAT_DROPPERS
from tupe_jax.errors import UserError

_PLAIN: Mapping[str, str] = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u00b4\u02bc\u2032", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    "\u2026": "...",
    # Soft hyphens, zero-width characters and byte-order marks are not seen by a reader.
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
}
_TO_PLAIN = re.compile(f"[{''.join(_PLAIN)}]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\ufffd]")

SHORT_LINE_WORDS = 8


def has_plain_marks_only(text: str) -> bool:
    """Whether no quote, dash or ellipsis in it is one that `normalise_punctuation` rewrites."""
    return _TO_PLAIN.search(text) is None


def normalise_punctuation(text: str) -> str:
    """Write quotes, dashes, ellipses and spaces in one way, and drop what cannot be seen."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        text = _TO_PLAIN.sub(lambda match: _PLAIN[match[0]], text)
    # `` and '' are how TeX and treebanks write a quotation mark.
    text = _CONTROL.sub("", text).replace("``", '"').replace("''", '"')
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def merge_short_lines(text: str) -> str:
    """Join each line of fewer than SHORT_LINE_WORDS words with what follows it.

    Headings, captions and one-word answers would otherwise be "sentences" of their own. A short
    line at the end of the document joins what is before it.
    """
    merged: list[str] = []
    words_of_last = SHORT_LINE_WORDS
    for line in text.split("\n"):
        words = line.count(" ") + 1
        if words_of_last < SHORT_LINE_WORDS:
            merged[-1] += f" {line}"
            words_of_last += words
        else:
            merged.append(line)
            words_of_last = words
    if words_of_last < SHORT_LINE_WORDS and len(merged) > 1:
        last = merged.pop()
        merged[-1] += f" {last}"
    return "\n".join(merged)


CLEANERS: Mapping[str, Callable[[str], str]] = {
    "normalise_punctuation": normalise_punctuation,
    "merge_short_lines": merge_short_lines,
}

# In the order in which they make sense: repeats are easier to see in normalised text, and lines
# are compared before they are merged.
CLEANING_STEPS = ("normalise_punctuation", *REPEAT_DROPPERS, "merge_short_lines")


def parse_cleaning(names: str) -> tuple[str, ...]:
    """Return the steps named in a comma-separated list (`all`, `none`), in the order they run."""
    if names in ("all", "none"):
        return CLEANING_STEPS if names == "all" else ()
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in CLEANING_STEPS:
            raise UserError(
                f"no cleaning step {name!r}; there are {', '.join(CLEANING_STEPS)} (or all, none)"
            )
    return tuple(step for step in CLEANING_STEPS if step in chosen)

"""Cleaning of documents: pure functions of text, selected by name.

A document is a string with one sentence or paragraph per line.
"""

from collections.abc import Callable, Mapping

from tupe_jax.data.pretraining.deduplication import REPEAT_DROPPERS
from tupe_jax.tokenizers.normalization import normalise_punctuation
from tupe_jax.utils.errors import UserError

SHORT_LINE_WORDS = 8


def merge_short_lines(text: str) -> str:
    """Join each line of fewer than SHORT_LINE_WORDS words to the next line.

    Otherwise headings, captions and one-word answers would count as sentences. A short line at the
    end of a document is joined to the previous line.
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

# In the order in which they run: repeats are easier to find in normalized text, and lines are
# compared before they are merged.
CLEANING_STEPS = ("normalise_punctuation", *REPEAT_DROPPERS, "merge_short_lines")


def parse_cleaning(names: str) -> tuple[str, ...]:
    """Return the steps of a comma-separated list, or of `all` or `none`, in the order they run."""
    if names in ("all", "none"):
        return CLEANING_STEPS if names == "all" else ()
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in CLEANING_STEPS:
            raise UserError(
                f"unknown cleaning step {name!r}; expected all, none, or some of "
                f"{', '.join(CLEANING_STEPS)}"
            )
    return tuple(step for step in CLEANING_STEPS if step in chosen)

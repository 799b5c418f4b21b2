"""How the text data sets of TFDS lay out an article, and how it becomes a document of lines."""

import re
from collections.abc import Callable, Mapping

_WIKI40B_MARK = re.compile(r"\n_START_(ARTICLE|SECTION|PARAGRAPH)_\n")
_WIKI40B_LINE_BREAK = "_NEWLINE_"


def lines(text: str) -> str:
    """Return the lines that are not blank: one sentence (lm1b) or one paragraph (c4) each."""
    stripped = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in stripped if line)


def wiki40b(text: str) -> str:
    """Return the paragraphs of a wiki40b article, without its title and section headings."""
    pieces = _WIKI40B_MARK.split(text)
    # split() gives: text before the first mark, then mark and text in turn.
    marked = zip(pieces[1::2], pieces[2::2], strict=True)
    paragraphs = (body for mark, body in marked if mark == "PARAGRAPH")
    return lines("\n".join(body.replace(_WIKI40B_LINE_BREAK, "\n") for body in paragraphs))


def wikipedia(text: str) -> str:
    """Return the lines of a Wikipedia article, without its list of categories."""
    return "\n".join(line for line in lines(text).split("\n") if not line.startswith("Category:"))


# By the name of the TFDS builder. All of them have their text in the feature `text`.
LAYOUTS: Mapping[str, Callable[[str], str]] = {
    "c4": lines,
    "lm1b": lines,
    "wiki40b": wiki40b,
    "wikipedia": wikipedia,
}
# What a name without a config stands for.
DEFAULT_CONFIGS: Mapping[str, str] = {"c4": "en", "wiki40b": "en", "wikipedia": "20230601.en"}

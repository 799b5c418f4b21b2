"""A parsed sentence as it is written, so that its words can be put into another order.

A word here is what stands between spaces: Penn trees cut off clitics (`do n't`, `farmer 's`), which
go back to the word before them and move with it. Punctuation marks are no words and stay where
they are. The first word loses its capital letter unless it is a name, or else it would tell in
every order which word came first; the text begins with a capital whatever comes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tupe_jax.data.labelled.penn_trees import Leaf, Tree, constituents, leaves

_CLITICS = frozenset({"'s", "n't", "'re", "'ve", "'ll", "'d", "'m"})
_WRITTEN = {"``": '"', "''": '"', "-LRB-": "(", "-RRB-": ")"}
_BEFORE_A_WORD = frozenset({"``", "-LRB-"})
_AFTER_A_WORD = frozenset({",", ".", "!", "?", ";", ":", "''", "-RRB-"})
_PROPER = frozenset({"NNP", "NNPS"})


@dataclass(frozen=True)
class Written:
    """Words and punctuation marks, and which of them make up each constituent."""

    tokens: tuple[str, ...]
    constituents: tuple[frozenset[int], ...]
    """The words (not the marks) of each, as places in `tokens`."""

    @property
    def words(self) -> tuple[int, ...]:
        """The places of the words."""
        return tuple(place for place, token in enumerate(self.tokens) if is_word(token))

    @property
    def text(self) -> str:
        return spelled(self.tokens)


def written(tree: Tree) -> Written:
    """The sentence of a tree."""
    pieces = joined(without_capital(tuple(leaves(tree))))
    tokens = tuple(piece.token for piece in pieces)
    groups = []
    for _, start, end in constituents(tree):
        inside = (n for n, piece in enumerate(pieces) if start <= piece.start and piece.end <= end)
        groups.append(frozenset(n for n in inside if is_word(tokens[n])))
    return Written(tokens, tuple(dict.fromkeys(groups)))


def is_word(token: str) -> bool:
    return any(character.isalnum() for character in token)


@dataclass(frozen=True)
class WrittenToken:
    """A written word or mark, and the leaves it is made of."""

    token: str
    start: int
    end: int


def joined(words: Sequence[Leaf]) -> list[WrittenToken]:
    """Clitics put back, and `can not` written as one word."""
    pieces: list[WrittenToken] = []
    for place, (tag, word) in enumerate(words):
        before = pieces[-1].token if pieces else ""
        clitic = word.lower() in _CLITICS or tag == "POS"
        if is_word(before) and (clitic or (before.lower(), word) == ("can", "not")):
            pieces[-1] = WrittenToken(before + word, pieces[-1].start, place + 1)
        else:
            pieces.append(WrittenToken(word, place, place + 1))
    return pieces


def without_capital(words: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """The first letter in lower case unless the first word is a name, or `I`."""
    (tag, word), *others = words
    keeps = tag in _PROPER or word == "I" or word[1:] != word[1:].lower()
    return (Leaf(tag, word if keeps else word.lower()), *others)


def spelled(tokens: Sequence[str]) -> str:
    """Running text that begins with a capital letter."""
    text, beside = "", True
    for token in tokens:
        text += ("" if beside or token in _AFTER_A_WORD else " ") + _WRITTEN.get(token, token)
        beside = token in _BEFORE_A_WORD
    return text[:1].upper() + text[1:]

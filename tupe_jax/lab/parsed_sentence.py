"""A parsed sentence as written text whose words can be reordered.

Words are separated by spaces. Penn trees split off clitics (`do n't`, `farmer 's`), which are
joined with the preceding word and move with it. Punctuation marks are not words and keep their
position. The first word loses its capital letter unless it is a name, because the capital would
reveal the original first word; the text always starts with a capital letter.
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
class ParsedSentence:
    """Words and punctuation marks, and the words of each constituent."""

    tokens: tuple[str, ...]
    constituents: tuple[frozenset[int], ...]
    """The words (without punctuation marks) of each, as indices into `tokens`."""

    @property
    def words(self) -> tuple[int, ...]:
        """The indices of the words."""
        return tuple(index for index, token in enumerate(self.tokens) if is_word(token))

    @property
    def text(self) -> str:
        return spelled(self.tokens)


def parsed_sentence(tree: Tree) -> ParsedSentence:
    """The sentence of a tree."""
    joined_tokens = joined(without_capital(tuple(leaves(tree))))
    tokens = tuple(token.text for token in joined_tokens)
    groups = []
    for _, start, end in constituents(tree):
        inside = (
            n for n, token in enumerate(joined_tokens) if start <= token.start and token.end <= end
        )
        groups.append(frozenset(n for n in inside if is_word(tokens[n])))
    return ParsedSentence(tokens, tuple(dict.fromkeys(groups)))


def is_word(token: str) -> bool:
    return any(character.isalnum() for character in token)


@dataclass(frozen=True)
class WrittenToken:
    """A written word or punctuation mark, and the leaves that it consists of."""

    text: str
    start: int
    end: int


def joined(words: Sequence[Leaf]) -> list[WrittenToken]:
    """Join clitics with their words, and write `can not` as one word."""
    joined_tokens: list[WrittenToken] = []
    for index, (tag, word) in enumerate(words):
        before = joined_tokens[-1].text if joined_tokens else ""
        clitic = word.lower() in _CLITICS or tag == "POS"
        if is_word(before) and (clitic or (before.lower(), word) == ("can", "not")):
            joined_tokens[-1] = WrittenToken(before + word, joined_tokens[-1].start, index + 1)
        else:
            joined_tokens.append(WrittenToken(word, index, index + 1))
    return joined_tokens


def without_capital(words: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """Lower the first letter unless the first word is a name or `I`."""
    (tag, word), *others = words
    keeps = tag in _PROPER or word == "I" or word[1:] != word[1:].lower()
    return (Leaf(tag, word if keeps else word.lower()), *others)


def spelled(tokens: Sequence[str]) -> str:
    """The tokens as text that starts with a capital letter."""
    text, beside = "", True
    for token in tokens:
        text += ("" if beside or token in _AFTER_A_WORD else " ") + _WRITTEN.get(token, token)
        beside = token in _BEFORE_A_WORD
    return text[:1].upper() + text[1:]

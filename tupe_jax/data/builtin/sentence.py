"""A sentence with its words, constituency tree and semantic roles."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tupe_jax.data.builtin.plan import Skeleton, Statement

Span: TypeAlias = tuple[int, int]  # words[start:end]
# (label, child, child ...) down to (tag, word), as in the Penn Treebank.
Tree: TypeAlias = "tuple[str | Tree, ...]"


class Predicate(NamedTuple):
    """A verb and its participants, as spans of words.

    Where a role is filled from outside the verb's own clause (the noun before a relative clause,
    the subject before `and` or `to`), the span is that of the phrase outside.
    """

    verb: int
    agent: Span | None
    patient: Span | None
    recipient: Span | None


class Mention(NamedTuple):
    """A phrase that stands for an entity of the document; equal numbers, same entity."""

    entity: int
    span: Span
    pronoun: bool


class Constituent(NamedTuple):
    """A labelled span of words."""

    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence. In words and tree, punctuation marks are tokens of their own."""

    words: tuple[str, ...]
    skeleton: Skeleton  # the tree without its words
    roles: tuple[Predicate, ...]
    mentions: tuple[Mention, ...]
    plan: Statement

    @property
    def text(self) -> str:
        """Normal English spelling."""
        return spell(self.words)

    @property
    def tree(self) -> Tree:
        """The constituency tree, with the words as leaves."""
        words = iter(self.words)

        def fill(node: Skeleton) -> Tree:
            children = (
                (child, next(words)) if isinstance(child, str) else fill(child)
                for child in node[1:]
            )
            return (node[0], *children)

        return fill(self.skeleton)

    @property
    def bracketed(self) -> str:
        """The tree in Penn notation: `(S (NP (DT The) (NN cow)) ...)`."""
        return _bracketed(self.tree)

    @property
    def tags(self) -> tuple[str, ...]:
        """The part of speech of each word."""
        return tuple(_tags(self.skeleton))

    @property
    def constituents(self) -> tuple[Constituent, ...]:
        """All labelled spans above single words, each before those it contains."""
        found: list[Constituent] = []
        _collect(self.skeleton, 0, found)
        return tuple(found)

    def phrase(self, span: Span) -> str:
        """The words of a span, with spaces."""
        return " ".join(self.words[span[0] : span[1]])


def spell(words: Sequence[str]) -> str:
    """Words and punctuation marks as running text that begins with a capital letter.

    As in the Penn Treebank, `cannot` and `farmer's` are two words each.
    """
    text = " ".join(words).replace(" ,", ",").replace(" .", ".").replace(" 's", "'s")
    text = text.replace(" can not ", " cannot ")
    return text[0].upper() + text[1:]


def _bracketed(tree: Tree) -> str:
    inside = (child if isinstance(child, str) else _bracketed(child) for child in tree)
    return f"({' '.join(inside)})"


def _tags(node: Skeleton) -> Iterator[str]:
    for child in node[1:]:
        if isinstance(child, str):
            yield child
        else:
            yield from _tags(child)


def _collect(node: Skeleton, start: int, found: list[Constituent]) -> int:
    """Append the constituents of a node that starts at a word; return the word after it."""
    slot = len(found)
    end = start
    for child in node[1:]:
        end = end + 1 if isinstance(child, str) else _collect(child, end, found)
    found.insert(slot, Constituent(str(node[0]), start, end))
    return end

"""Constituency trees in Penn notation, `(S (NP (DT The) (NN cow)) ...)`, as tuples."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tupe_jax.data.builtin.sentence import Constituent, Tree

__all__ = ["Constituent", "Leaf", "Tree", "constituents", "is_leaf", "leaves", "parse_tree"]


class Leaf(NamedTuple):
    """A word and its part of speech."""

    tag: str
    word: str


def parse_tree(text: str) -> Tree:
    """Parse one tree. Raise ValueError if it is malformed."""
    open_nodes: list[list[str | Tree]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            open_nodes.append([])
        elif token != ")":
            open_nodes[-1].append(token)
        elif len(open_nodes) > 1:
            node = tuple(open_nodes.pop())
            _check(node)
            open_nodes[-1].append(node)
        else:
            raise ValueError("the tree has more closing than opening brackets")
    if len(open_nodes) > 1:
        raise ValueError("the tree has more opening than closing brackets")
    (found,) = open_nodes
    if len(found) != 1 or isinstance(found[0], str):
        raise ValueError(f"expected one tree in brackets, not {text[:40]!r}")
    return found[0]


def _check(node: Tree) -> None:
    label, *children = node or ("",)
    words = [child for child in children if isinstance(child, str)]
    if not isinstance(label, str) or not children or (words and len(children) > 1):
        raise ValueError(f"expected a label with a word or with nodes, not {node!r}")


def is_leaf(tree: Tree) -> bool:
    return isinstance(tree[1], str)


def leaves(tree: Tree) -> Iterator[Leaf]:
    """Yield all words from left to right."""
    label, *children = tree
    for child in children:
        if isinstance(child, str):
            yield Leaf(str(label), child)
        else:
            yield from leaves(child)


def constituents(tree: Tree, start: int = 0) -> Iterator[Constituent]:
    """Yield all labelled spans above single words, each before those it contains."""
    if is_leaf(tree):
        return
    yield Constituent(str(tree[0]), start, start + _width(tree))
    for child in tree[1:]:
        assert not isinstance(child, str)
        yield from constituents(child, start)
        start += _width(child)


def _width(tree: Tree) -> int:
    return sum(1 for _ in leaves(tree))

"""Readers of JSON lines, plain or gzip: BLiMP's minimal pairs and parsed SNLI."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tupe_jax.data.labelled.glue import THREE_WAY
from tupe_jax.data.labelled.penn_trees import Tree, parse_tree
from tupe_jax.data.labelled.tsv import numbered_lines, parse_label
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path

_WORD_OR_MARK = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one respect. Only `good` is grammatical."""

    good: str
    bad: str
    paradigm: str
    """The phenomenon in which they differ. BLiMP calls it UID."""

    @property
    def same_words(self) -> bool:
        """Whether the sentences differ only in word order."""
        good, bad = (sorted(_WORD_OR_MARK.findall(text.lower())) for text in (self.good, self.bad))
        return good == bad


@dataclass(frozen=True)
class ParsedPair:
    """The parse trees of an SNLI pair, and the index of its label in THREE_WAY."""

    premise: Tree
    hypothesis: Tree
    label: int


NO_AGREEMENT = "-"
"""SNLI's label if the annotators did not agree."""


def read_minimal_pairs(path: Path) -> list[MinimalPair]:
    """Read pairs in BLiMP's format: `sentence_good`, `sentence_bad`, and `UID` for the paradigm."""
    names = ("sentence_good", "sentence_bad", "UID")
    return [MinimalPair(*row) for _, row in _rows(path, names)]


def read_parsed_snli(path: Path) -> list[ParsedPair]:
    """Read pairs in the format of SNLI's own files, without those that lack a gold label."""
    names = ("sentence1_parse", "sentence2_parse", "gold_label")
    pairs = []
    for number, (premise, hypothesis, label) in _rows(path, names):
        if label == NO_AGREEMENT:
            continue
        try:
            trees = parse_tree(premise), parse_tree(hypothesis)
            pairs.append(ParsedPair(*trees, int(parse_label(label, THREE_WAY))))
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}") from None
    return pairs


def _rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and the values of the named keys."""
    empty = True
    for number, line in numbered_lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}:{number}: not JSON ({error.msg})") from None
        missing = [n for n in names if not isinstance(row, dict) or not isinstance(row.get(n), str)]
        if missing:
            raise UserError(f"{path}:{number}: missing text {', '.join(map(repr, missing))}")
        empty = False
        yield number, [row[name] for name in names]
    if empty:
        raise UserError(f"{path}: empty file")

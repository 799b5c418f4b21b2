"""Files of one JSON object per line, plain or gzip: BLiMP's minimal pairs and parsed SNLI."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tupe_jax.data.labelled.glue import THREE_WAY
from tupe_jax.data.labelled.penn_trees import Tree, parse_tree
from tupe_jax.data.labelled.tsv import numbered_lines, parse_label
from tupe_jax.utils.errors import UserError

_WORD_OR_MARK = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one thing; only `good` is English."""

    good: str
    bad: str
    paradigm: str
    """What kind of thing; BLiMP calls it UID."""

    @property
    def same_words(self) -> bool:
        """Whether nothing but the order differs."""
        good, bad = (sorted(_WORD_OR_MARK.findall(text.lower())) for text in (self.good, self.bad))
        return good == bad


@dataclass(frozen=True)
class ParsedPair:
    """A pair of SNLI with its trees, and the number of its label in THREE_WAY."""

    premise: Tree
    hypothesis: Tree
    label: int


NO_AGREEMENT = "-"
"""SNLI's label where the annotators did not agree."""


def read_minimal_pairs(path: Path) -> list[MinimalPair]:
    """Pairs in BLiMP's form: `sentence_good`, `sentence_bad`, and `UID` for the paradigm."""
    names = ("sentence_good", "sentence_bad", "UID")
    return [MinimalPair(*row) for _, row in _rows(path, names)]


def read_parsed_snli(path: Path) -> list[ParsedPair]:
    """Pairs in the form of SNLI's own files, except those without a gold label."""
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
    """Yield line numbers and the named texts of each line."""
    empty = True
    for number, line in numbered_lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}:{number}: not JSON ({error.msg})") from None
        missing = [n for n in names if not isinstance(row, dict) or not isinstance(row.get(n), str)]
        if missing:
            raise UserError(f"{path}:{number}: no text {', '.join(map(repr, missing))}")
        empty = False
        yield number, [row[name] for name in names]
    if empty:
        raise UserError(f"{path}: no lines")

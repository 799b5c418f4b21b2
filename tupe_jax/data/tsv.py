"""Labelled examples from tab-separated files, plain or gzip, the way GLUE writes them.

Quotation marks are ordinary characters. Columns are found by name, so that files which carry more
of them (parse trees, annotators' labels) need no special case.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tupe_jax.data.examples import Example
from tupe_jax.data.lines import numbered_lines
from tupe_jax.errors import UserError


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; `sentence2` is None where there is no second sentence."""

    sentence1: str
    sentence2: str | None
    label: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.sentence1, self.sentence2, self.label) if name)


@dataclass(frozen=True)
class TsvFormat:
    """What to expect in a file.

    `classes` are the label's values in the order of their numbers; None means it is a score.
    `header` names the columns of a file that has no header line.
    `no_label` is what stands in the label's place where there is none; such rows are left out.
    `short_lines` is how many lines with too few columns to leave out before it is an error.
    """

    columns: Columns
    classes: tuple[str, ...] | None
    header: tuple[str, ...] | None = None
    no_label: str | None = None
    short_lines: int = 0


def read_tsv(path: Path, form: TsvFormat) -> list[Example]:
    """Return the labelled rows of the file; what does not fit is an error naming the line."""
    lines = numbered_lines(path)
    header = form.header
    if header is None:
        _, first = next(lines, (1, ""))
        header = tuple(first.split("\t"))
    _check_header(path, header, form.columns)
    examples = []
    short_lines_left = form.short_lines
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) < len(header) and short_lines_left:
            short_lines_left -= 1
            continue
        if len(fields) != len(header):
            raise UserError(
                f"{path}:{number}: {len(fields)} columns, but {len(header)} are expected "
                f"({', '.join(header)})"
            )
        row = dict(zip(header, fields, strict=True))
        if row[form.columns.label] == form.no_label:
            continue
        try:
            label = parse_label(row[form.columns.label], form.classes)
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        sentence2 = None if form.columns.sentence2 is None else row[form.columns.sentence2]
        examples.append(Example(row[form.columns.sentence1], sentence2, label))
    if not examples:
        raise UserError(f"{path}: no labelled rows")
    return examples


def parse_label(text: str, classes: Sequence[str] | None) -> int | float:
    """Return the class's number, or the score if there are no classes."""
    if classes is None:
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise ValueError(f"the label {text!r} is not a number")
        return score
    if text not in classes:
        raise ValueError(f"the label {text!r} is not one of {', '.join(classes)}")
    return classes.index(text)


def _check_header(path: Path, header: Sequence[str], columns: Columns) -> None:
    missing = [name for name in columns.names if name not in header]
    if missing:
        raise UserError(
            f"{path}:1: no column {', '.join(map(repr, missing))}; the columns are "
            f"{', '.join(map(repr, header))}"
        )

"""Labelled examples from tab-separated files, plain or gzip, in the format of GLUE.

Quotation marks are ordinary characters. Columns are found by name, so files with more columns
(parse trees, annotators' labels) need no special case.
"""

import gzip
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tupe_jax.data.labelled.example import NO_LABEL, Example
from tupe_jax.utils.errors import UserError, reading_failed, reason
from tupe_jax.utils.files import local_file
from tupe_jax.utils.paths import Path


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read. `sentence2` is None for tasks of single sentences."""

    sentence1: str
    sentence2: str | None
    label: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.sentence1, self.sentence2, self.label) if name)


@dataclass(frozen=True)
class TsvFormat:
    """The format of a file.

    `classes` are the labels in the order of their class numbers. None means the label is a score.
    `header` names the columns of a file that has no header line.
    `no_label` marks a row without label. Such rows are skipped.
    `short_lines` is the number of lines with too few columns that are skipped without an error.
    """

    columns: Columns
    classes: tuple[str, ...] | None
    header: tuple[str, ...] | None = None
    no_label: str | None = None
    short_lines: int = 0


def read_tsv(path: Path, form: TsvFormat) -> list[Example]:
    """Return the labelled rows of a file. An error names the file and the line."""
    columns = form.columns
    examples = []
    for number, row in _rows(path, columns.names, form.header, form.short_lines):
        written = row[columns.label].strip()
        if written == form.no_label:
            continue
        try:
            label = parse_label(written, form.classes)
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        examples.append(_example(row, columns, label))
    if not examples:
        raise UserError(f"{path}: no labelled rows")
    return examples


def read_unlabelled(path: Path, columns: Columns) -> list[Example]:
    """Return every row of a file with a header line, without labels.

    No line is skipped, because predictions are reported by row number.
    """
    needed = [name for name in columns.names if name != columns.label]
    examples = [_example(row, columns, NO_LABEL) for _, row in _rows(path, needed)]
    if not examples:
        raise UserError(f"{path}: no rows")
    return examples


def read_classes(path: Path, columns: Columns) -> tuple[str, ...]:
    """Return the distinct labels of a file, sorted as integers if all are, else as strings."""
    found = set()
    for number, row in _rows(path, columns.names):
        label = row[columns.label].strip()
        if not label:
            raise UserError(f"{path}:{number}: no label in column {columns.label!r}")
        found.add(label)
    if not found:
        raise UserError(f"{path}: no labelled rows")
    if all(re.fullmatch(r"-?\d+", label) for label in found):
        return tuple(sorted(found, key=lambda label: (int(label), label)))
    return tuple(sorted(found))


def parse_label(text: str, classes: Sequence[str] | None) -> int | float:
    """Return the class number, or the score if there are no classes."""
    if classes is None:
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise ValueError(f"label {text!r} is not a number")
        return score
    if text not in classes:
        raise ValueError(f"label {text!r} is not one of {', '.join(classes)}")
    return classes.index(text)


def _rows(
    path: Path, needed: Sequence[str], header: Sequence[str] | None = None, short_lines: int = 0
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line numbers and rows as dicts. See `TsvFormat` for `header` and `short_lines`."""
    lines = numbered_lines(path)
    if header is None:
        _, first = next(lines, (1, ""))
        header = tuple(first.split("\t"))
    _check_header(path, header, needed)
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) < len(header) and short_lines:
            short_lines -= 1
            continue
        if len(fields) != len(header):
            raise UserError(
                f"{path}:{number}: {len(fields)} columns, but expected {len(header)}: "
                f"{', '.join(header)}"
            )
        yield number, dict(zip(header, fields, strict=True))


def _example(row: Mapping[str, str], columns: Columns, label: int | float) -> Example:
    sentence2 = None if columns.sentence2 is None else row[columns.sentence2]
    return Example(row[columns.sentence1], sentence2, label)


def _check_header(path: Path, header: Sequence[str], needed: Sequence[str]) -> None:
    for name in needed:
        if header.count(name) > 1:
            raise UserError(
                f"{path}:1: column {name!r} appears {header.count(name)} times in the header; "
                "rename all but one"
            )
    missing = [name for name in needed if name not in header]
    if missing:
        raise UserError(
            f"{path}:1: no column {', '.join(map(repr, missing))}; the columns are "
            f"{', '.join(map(repr, header))}"
        )


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the non-empty lines of a plain or gzip file.

    Only a line feed ends a line: sentences may contain other Unicode line separators.
    """
    try:
        with (
            local_file(path) as local,
            gzip.open(local) if path.suffix == ".gz" else local.open("rb") as file,
        ):
            for number, line in enumerate(file, start=1):
                text = line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")
                if text:
                    yield number, text
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: not UTF-8 ({error.reason})") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: corrupt gzip file ({error}); download it again") from None
    except OSError as error:
        raise reading_failed(f"{path}: cannot read it ({reason(error)})", error) from None

"""Tab-separated examples are read unchanged, and errors name file and line."""

import gzip
from pathlib import Path

import pytest

from tupe_jax.data.labelled.example import NO_LABEL, Example
from tupe_jax.data.labelled.tsv import Columns, TsvFormat, read_tsv, read_unlabelled
from tupe_jax.utils.errors import UserError

PAIR = Columns("premise", "hypothesis", "label")
FORM = TsvFormat(PAIR, classes=("no", "yes"))


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "id\tlabel\thypothesis\tpremise\n7\tyes\tH.\tP.\n")
    assert read_tsv(path, FORM) == [Example("P.", "H.", 1)]


def test_quotation_marks_are_characters(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tsv", 'premise\thypothesis\tlabel\n"He said\t"no" \tno\nA\tB"\tyes\n'
    )
    assert read_tsv(path, FORM) == [Example('"He said', '"no" ', 0), Example("A", 'B"', 1)]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "premise\thypothesis\tlabel\r\na\x85b\u2028c\td\x0ce\tno\r\n")
    assert read_tsv(path, FORM) == [Example("a\x85b\u2028c", "d\x0ce", 0)]


def test_gzip_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress("\ufeffpremise\thypothesis\tlabel\nP\tH\tno\n\n".encode()))
    assert read_tsv(path, FORM) == [Example("P", "H", 0)]


def test_a_file_without_header_and_without_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "x\t1\t\tIt is.\nx\t0\t*\tIs it\n")
    form = TsvFormat(
        Columns("sentence", None, "label"),
        ("0", "1"),
        header=("source", "label", "mark", "sentence"),
    )
    assert read_tsv(path, form) == [Example("It is.", None, 1), Example("Is it", None, 0)]


def test_scores_are_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "premise\thypothesis\tlabel\nP\tH\t3.750\n")
    assert read_tsv(path, TsvFormat(PAIR, classes=None)) == [Example("P", "H", 3.75)]
    write(path, "premise\thypothesis\tlabel\nP\tH\tnan\n")
    with pytest.raises(UserError, match=r"a\.tsv:2: .*'nan'"):
        read_tsv(path, TsvFormat(PAIR, classes=None))


def test_rows_without_a_label_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "premise\thypothesis\tlabel\nP\tH\t-\nP\tI\tyes\n")
    assert read_tsv(path, TsvFormat(PAIR, ("no", "yes"), no_label="-")) == [Example("P", "I", 1)]


def test_rows_of_a_test_file_need_no_label_and_are_all_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "index\tpremise\thypothesis\n0\tP\tH\n1\tP\tI\n")
    both = [Example("P", "H", NO_LABEL), Example("P", "I", NO_LABEL)]
    assert read_unlabelled(path, PAIR) == both
    write(path, "label\tpremise\thypothesis\nyes\tP\tH\n-\tP\tI\n")
    assert read_unlabelled(path, PAIR) == both
    write(path, "premise\thypothesis\nP\nP\tI\n")
    with pytest.raises(UserError, match=r"a\.tsv:2: 1 .*2"):
        read_unlabelled(path, PAIR)
    write(path, "premise\thypothesis\n")
    with pytest.raises(UserError, match=r"a\.tsv: "):
        read_unlabelled(path, PAIR)


def test_only_a_given_number_of_short_lines_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "premise\thypothesis\tlabel\nP\nP\tI\tyes\n\tH\n")
    assert read_tsv(path, TsvFormat(PAIR, ("no", "yes"), short_lines=2)) == [Example("P", "I", 1)]
    with pytest.raises(UserError, match=r"a\.tsv:4: 2 .*3"):
        read_tsv(path, TsvFormat(PAIR, ("no", "yes"), short_lines=1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("premise\tlabel\nP\tyes\n", r"a\.tsv:1: .*'hypothesis'.* 'premise', 'label'"),
        ("premise\thypothesis\tlabel\nP\tH\n", r"a\.tsv:2: 2 .*3"),
        ("premise\thypothesis\tlabel\nP\tH\tno\tx\n", r"a\.tsv:2: 4 .*3"),
        ("premise\thypothesis\tlabel\nP\tH\tno\nP\tH\tmaybe\n", r":3: .*'maybe'.* no, yes"),
        ("premise\thypothesis\tlabel\n", r"a\.tsv: "),
        ("premise\tpremise\thypothesis\tlabel\n", r":1: .*'premise' .*2"),
        ("", r"a\.tsv:1: "),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_tsv(write(tmp_path / "a.tsv", text), FORM)


def test_broken_utf8_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"premise\thypothesis\tlabel\nP\tH\tno\nP\xff\tH\tno\n")
    with pytest.raises(UserError, match=r"a\.tsv:3: .*UTF-8"):
        read_tsv(path, FORM)


def test_a_cut_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"premise\thypothesis\tlabel\n" + b"P\tH\tno\n" * 50)[:-9])
    with pytest.raises(UserError, match=r"a\.tsv\.gz: .*gzip"):
        read_tsv(path, FORM)
    path.write_bytes(b"not gzip at all")
    with pytest.raises(UserError, match=r"a\.tsv\.gz: .*gzip"):
        read_tsv(path, FORM)


def test_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{tmp_path.name}: .*Is a directory"):
        read_tsv(tmp_path, FORM)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.tsv: "):
        read_tsv(tmp_path / "a.tsv", FORM)

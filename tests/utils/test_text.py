"""Numbers and tables that a person reads."""

import pytest

from tupe_jax.utils.text import aligned_table, markdown_table, quantity


@pytest.mark.parametrize(
    ("number", "text"),
    [(7.2, "7"), (950, "950"), (999.6, "1.00 k"), (31234, "31.2 k"), (131072, "131 k"),
     (4.05e6, "4.05 M"), (2e9, "2.00 G"), (1.5e13, "15.0 T")],
)  # fmt: skip
def test_three_figures(number, text):
    assert quantity(number) == text


def test_numbers_of_a_markdown_table_are_aligned_to_the_right():
    rows = [("variant", "loss"), ("TUPE-R", "2.46")]
    assert markdown_table(rows) == ["| variant | loss |", "|---|---:|", "| TUPE-R | 2.46 |"]
    assert markdown_table(rows, right=False)[1] == "|---|---|"


def test_a_bar_does_not_end_a_cell_of_a_markdown_table():
    assert markdown_table([("a|b",)])[0] == r"| a\|b |"


def test_columns_of_an_aligned_table_have_equal_widths():
    rows = [("name", "size"), ("kernel", "7"), ("b", "10,000")]
    assert aligned_table(rows, right=(1,)) == ["name      size", "kernel       7", "b       10,000"]
    assert aligned_table(rows) == ["name    size", "kernel  7", "b       10,000"]

"""Numbers that a person reads."""

import pytest

from tupe_jax.utils.text import quantity


@pytest.mark.parametrize(
    ("number", "text"),
    [(7.2, "7"), (950, "950"), (999.6, "1.00 k"), (31234, "31.2 k"), (131072, "131 k"),
     (4.05e6, "4.05 M"), (2e9, "2.00 G"), (1.5e13, "15.0 T")],
)  # fmt: skip
def test_three_figures(number, text):
    assert quantity(number) == text

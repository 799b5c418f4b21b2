"""Cleaning steps are pure functions of text, chosen by name."""

import numpy as np
import pytest

from tupe_jax.data.pretraining.cleaning import (
    CLEANING_STEPS,
    merge_short_lines,
    normalise_punctuation,
    parse_cleaning,
)
from tupe_jax.data.pretraining.deduplication import (
    MEMORY_SLOTS,
    drop_repeated_documents,
    drop_repeated_lines,
)
from tupe_jax.utils.errors import UserError

LONG = "one two three four five six seven eight"


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("\u201cIt\u2019s\u201d \u00abso\u00bb", '"It\'s" "so"'),
        ("``It 's so ''", '"It \'s so "'),
        ("1914\u20131918 \u2014 war", "1914-1918 - war"),
        ("wait\u2026", "wait..."),
        ("soft\u00adhyphen \ufeffmark\u200b", "softhyphen mark"),
        ("no\u00a0break  and\ttab ", "no break and tab"),
        ("bell\x07 and \ufffd", "bell and"),
        ("e\u0301", "\u00e9"),
        ("a\n \u00a0\nb", "a\nb"),
    ],
)
def test_punctuation_is_written_in_one_way(raw: str, clean: str) -> None:
    assert normalise_punctuation(raw) == clean
    assert normalise_punctuation(clean) == clean


@pytest.mark.parametrize(
    ("lines", "merged"),
    [
        (["Heading", LONG, LONG], [f"Heading {LONG}", LONG]),
        ([LONG, "The end"], [f"{LONG} The end"]),
        (["a b c", "d e f", "g h i", LONG], ["a b c d e f g h i", LONG]),
        (["only this"], ["only this"]),
        ([LONG, LONG], [LONG, LONG]),
    ],
)
def test_short_lines_join_their_neighbours(lines: list[str], merged: list[str]) -> None:
    assert merge_short_lines("\n".join(lines)).split("\n") == merged


def test_repeated_documents_are_dropped_also_across_calls() -> None:
    memory, first = drop_repeated_documents(
        np.zeros(MEMORY_SLOTS, np.uint64), ["A b.", "c", "a, B"]
    )
    assert first == ["A b.", "c"]
    _, second = drop_repeated_documents(memory, ["C!", "d"])
    assert second == ["d"]


def test_repeated_long_lines_are_dropped_and_short_ones_stay() -> None:
    documents = [f"{LONG}\nYes.", f"Yes.\n{LONG}\n{LONG} nine", LONG]
    _, kept = drop_repeated_lines(np.zeros(MEMORY_SLOTS, np.uint64), documents)
    assert kept == [f"{LONG}\nYes.", f"Yes.\n{LONG} nine"]


def test_dropping_repeats_leaves_the_given_memory_alone() -> None:
    memory = np.zeros(MEMORY_SLOTS, np.uint64)
    for drop in (drop_repeated_documents, drop_repeated_lines):
        after, _ = drop(memory, [LONG])
        assert not memory.any()
        assert np.count_nonzero(after) == 1


def test_steps_are_chosen_by_name_and_run_in_their_own_order() -> None:
    assert parse_cleaning("all") == CLEANING_STEPS
    assert parse_cleaning("none") == ()
    names = "merge_short_lines, normalise_punctuation"
    assert parse_cleaning(names) == ("normalise_punctuation", "merge_short_lines")
    with pytest.raises(UserError, match=r"'stem'.*normalise_punctuation"):
        parse_cleaning("normalise_punctuation,stem")

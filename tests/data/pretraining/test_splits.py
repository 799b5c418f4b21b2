"""The validation split is decided by the text of a document alone."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.small_corpus import documents
from tupe_jax.data.pretraining.deduplication import MEMORY_SLOTS, drop_repeated_documents
from tupe_jax.data.pretraining.splits import fingerprint, is_held_out, is_in_share


def test_about_one_document_in_200_is_held_out() -> None:
    held_out = sum(map(is_held_out, documents(20_000)))
    assert 70 <= held_out <= 130  # 100 expected, standard deviation 10


@given(st.text(st.characters(codec="ascii")))
def test_copies_that_differ_in_case_spacing_or_punctuation_are_the_same_text(text: str) -> None:
    assert fingerprint(f"\u201c{text} ") == fingerprint(f"{text.lower()}!\n")


def test_ascii_text_has_the_same_fingerprint_with_and_without_other_characters() -> None:
    # The two ways to compute it agree: only the quotation marks take the slow one.
    assert fingerprint("\u201cTo be_or not, 2 be\u201d") == fingerprint('"To be_or not, 2 be"')
    assert fingerprint("To be") != fingerprint("To bee")


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKD"])
@given(st.text())
def test_copies_in_another_unicode_form_are_the_same_text(form: str, text: str) -> None:
    assert fingerprint(unicodedata.normalize(form, text)) == fingerprint(text)


def test_a_decomposed_or_full_width_copy_is_on_the_same_side_and_a_repeat() -> None:
    for number in range(600):  # three of them are held out
        text = f"caf\u00e9 \u00e0 la carte {number}"
        full_width = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)
        copies = [text, unicodedata.normalize("NFD", text), full_width]
        assert len({*copies}) == 3
        assert len({is_held_out(copy) for copy in copies}) == 1
        if number == 0:
            assert drop_repeated_documents(np.zeros(MEMORY_SLOTS, np.uint64), copies)[1] == [text]


def test_texts_in_other_scripts_differ() -> None:
    assert fingerprint("\u6f22\u5b57") != fingerprint("\u5b57\u6f22")


def test_a_share_is_part_of_every_larger_share() -> None:
    texts = documents(2000)
    half = {text for text in texts if is_in_share(0.5, text)}
    most = {text for text in texts if is_in_share(0.9, text)}
    assert half < most < set(texts)
    assert 900 <= len(half) <= 1100

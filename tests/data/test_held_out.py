"""The validation split is decided by the text of a document alone."""

from hypothesis import given
from hypothesis import strategies as st
from small_corpus import documents

from tupe_jax.data.held_out import fingerprint, is_held_out, is_in_share


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


def test_text_in_other_scripts_is_told_apart() -> None:
    assert fingerprint("\u6f22\u5b57") != fingerprint("\u5b57\u6f22")


def test_a_share_is_part_of_every_larger_share() -> None:
    texts = documents(2000)
    half = {text for text in texts if is_in_share(0.5, text)}
    most = {text for text in texts if is_in_share(0.9, text)}
    assert half < most < set(texts)
    assert 900 <= len(half) <= 1100

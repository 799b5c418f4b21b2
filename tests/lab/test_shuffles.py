"""Shuffles keep the words, stay inside their constituents, and change the order."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tupe_jax.data.builtin import document
from tupe_jax.data.builtin.random_stream import stream
from tupe_jax.lab.parsed_sentence import ParsedSentence, is_word, parsed_sentence
from tupe_jax.lab.shuffles import SIZES, shuffle_all, shuffle_constituents


def trees():
    """Random trees over few different words, with punctuation here and there."""
    leaf = st.sampled_from(["a", "b", "c", "d", "n't", ",", "."]).map(lambda word: ("X", word))
    return st.recursive(
        leaf, lambda inner: st.lists(inner, min_size=1, max_size=4).map(lambda c: ("P", *c))
    ).map(lambda tree: ("S", tree, ("X", "a")))


def corpus_trees():
    return st.tuples(st.integers(0, 10**6), st.integers(0, 5)).map(
        lambda which: document(1, which[0]).sentences[which[1]].tree
    )


sentences = st.one_of(trees(), corpus_trees()).map(parsed_sentence)


def assert_only_moved_within(groups, sentence, tokens):
    """Outside of the groups nothing moves; in each the words are the same, in another order."""
    inside = {place for group in groups for place in group}
    for place, (before, after) in enumerate(zip(sentence.tokens, tokens, strict=True)):
        assert place in inside or before == after
    changed = 0
    for group in groups:
        before = [sentence.tokens[place] for place in sorted(group)]
        after = [tokens[place] for place in sorted(group)]
        assert Counter(before) == Counter(after)
        assert before != after or len(set(before)) == 1
        changed += before != after
    assert changed


@settings(max_examples=300, deadline=None)
@given(sentences, st.sampled_from(SIZES), st.integers(0, 10**6))
def test_words_are_shuffled_inside_constituents_of_the_size(sentence, size, seed):
    groups = {group for group in sentence.constituents if len(group) == size}
    tokens = shuffle_constituents(sentence, size, stream(seed))
    if tokens is None:
        assert all(len({sentence.tokens[place] for place in group}) == 1 for group in groups)
    else:
        assert_only_moved_within(groups, sentence, tokens)


@settings(max_examples=300, deadline=None)
@given(sentences, st.integers(0, 10**6))
def test_random_shuffles_all_words_and_no_marks(sentence, seed):
    places = {place for place, token in enumerate(sentence.tokens) if is_word(token)}
    tokens = shuffle_all(sentence, stream(seed))
    if tokens is None:
        assert len({sentence.tokens[place] for place in places}) == 1
    else:
        assert_only_moved_within([places], sentence, tokens)


def test_every_other_order_comes_up():
    sentence = ParsedSentence(("a", "b", "c"), (frozenset({0, 1, 2}),))
    orders = {shuffle_constituents(sentence, 3, stream(seed)) for seed in range(100)}
    assert len(orders) == 5
    assert ("a", "b", "c") not in orders


@pytest.mark.parametrize("size", SIZES)
def test_the_built_in_corpus_has_constituents_of_every_size(size):
    sentences = [
        parsed_sentence(s.tree) for number in range(20) for s in document(0, number).sentences
    ]
    shuffled = [shuffle_constituents(s, size, stream(s.text)) for s in sentences]
    assert sum(tokens is not None for tokens in shuffled) > 0.25 * len(sentences)

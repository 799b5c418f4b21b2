"""Mistakes are made, and only where the result is wrong under every reading."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from tests.data.builtin.grammar_checks import verbs_that_disagree
from tupe_jax.data.builtin import Sentence, Tree, documents
from tupe_jax.data.builtin.lexicon import topics
from tupe_jax.data.builtin.phrases import Phrases
from tupe_jax.data.builtin.random_stream import stream
from tupe_jax.data.builtin.tasks import mistakes

ALL = (
    mistakes.agreement,
    mistakes.determiner,
    mistakes.word_order,
    mistakes.verb_form,
    mistakes.subcategorisation,
    mistakes.pronoun_case,
    mistakes.reflexive,
)


@cache
def sentences() -> tuple[Sentence, ...]:
    return tuple(s for d in documents(seed=8, start=0, count=350) for s in d.sentences)


def made(mistake: mistakes.Mistake) -> Iterator[tuple[Sentence, Sequence[str]]]:
    draw = stream("mistakes")
    phrases = Phrases(draw, topics()[0], "past")
    for sentence in sentences():
        wrong = mistake(phrases, draw, sentence)
        if wrong is not None:
            yield sentence, wrong


def lower(words: Sequence[str]) -> list[str]:
    return [word.lower() for word in words]


def difference(sentence: Sentence, wrong: Sequence[str]) -> tuple[int, str, str]:
    """The one place where they differ, and its two words."""
    pairs = enumerate(zip(lower(sentence.words), lower(wrong), strict=True))
    ((position, (before, after)),) = [(i, pair) for i, pair in pairs if pair[0] != pair[1]]
    return position, before, after


@pytest.mark.parametrize("mistake", ALL)
def test_a_mistake_changes_the_sentence(mistake: mistakes.Mistake):
    count = 0
    for sentence, wrong in made(mistake):
        assert lower(wrong) != lower(sentence.words)
        count += 1
    assert count > 5


def with_number_of(tree: Tree, words: Iterator[str]) -> Tree:
    """The tree with other words; finite verbs are tagged by the form that they now have."""
    label, *children = tree
    if not isinstance(children[0], str):
        return (label, *(with_number_of(child, words) for child in children))
    word = next(words)
    if word.lower() != children[0].lower():
        label = {"VBZ": "VBP", "VBP": "VBZ"}.get(label, label)
    return (label, word)


def test_agreement_is_broken_once():
    for sentence, wrong in made(mistakes.agreement):
        tree = with_number_of(sentence.tree, iter(wrong))
        assert len(list(verbs_that_disagree(tree))) == 1, wrong


def test_agreement_is_left_alone_where_both_numbers_are_right():
    invariant = {"fish", "deer", "cod", "trout", "goldfish"}
    seen = 0
    for sentence, wrong in made(mistakes.agreement):
        assert not invariant & {*wrong}
        _, before, after = difference(sentence, wrong)
        seen += 1
        assert (before, after) not in {("reads", "read"), ("cuts", "cut"), ("hits", "hit")}
    assert seen > 1000


def test_word_order_keeps_the_words():
    for sentence, wrong in made(mistakes.word_order):
        assert Counter(lower(wrong)) == Counter(lower(sentence.words))


def test_determiners_lose_their_noun():
    singular = {"a", "an", "this", "that", "every", "each", "another"}
    for sentence, wrong in made(mistakes.determiner):
        position, _, _ = difference(sentence, wrong)
        before = sentence.tags[position]
        start = position - 1
        while sentence.tags[start] == "JJ" and sentence.words[start].lower() not in (
            *("many", "several", "few", "other"),
        ):
            start -= 1
        assert (sentence.words[start].lower() in singular) == (before == "NN"), wrong


def test_pronouns_get_the_other_case():
    cases = {"he": "him", "she": "her", "they": "them"}
    cases |= {other: one for one, other in cases.items()}
    for sentence, wrong in made(mistakes.pronoun_case):
        position, before, after = difference(sentence, wrong)
        assert cases[before] == after
        assert sentence.tags[position] == "PRP"


def test_reflexives_stop_agreeing():
    for sentence, wrong in made(mistakes.reflexive):
        _, before, after = difference(sentence, wrong)
        assert {before, after} <= {"himself", "herself", "themselves"}


def test_verb_forms_do_not_follow_their_auxiliary():
    for sentence, wrong in made(mistakes.verb_form):
        position, _, after = difference(sentence, wrong)
        assert sentence.tags[position] in ("VB", "VBG", "VBN")
        assert after.endswith("s") == (sentence.tags[position] == "VB") or after.endswith("ss")

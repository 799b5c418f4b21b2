"""Agent and patient: found by rules, and exchanged exactly."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.builtin.grammar_checks import verbs_that_disagree
from tupe_jax.data.builtin import document, swap_roles
from tupe_jax.data.builtin.transform import main_clause
from tupe_jax.data.labelled.penn_trees import leaves, parse_tree
from tupe_jax.lab.parsed_sentence import parsed_sentence
from tupe_jax.lab.semantic_roles import exchange, find_roles

SIMPLE = "(ROOT (S (NP (DT {det}) {noun}) {vp} (. .)))"


def sentence(vp, noun="(NN dog)", det="The"):
    return parse_tree(SIMPLE.format(det=det, noun=noun, vp=vp))


CAT = "(NP (DT a) (NN cat))"
ACTIVE = f"(VP (VBZ is) (VP (VBG chasing) {CAT} (PP (IN in) (NP (NN town)))))"
PASSIVE = f"(VP (VBD was) (VP (VBN seen) (PP (IN by) {CAT})))"


@pytest.mark.parametrize(
    ("vp", "agent", "patient", "text"),
    [
        (f"(VP (VBZ sees) {CAT})", (0, 2), (3, 5), "A cat sees the dog."),
        (ACTIVE, (0, 2), (4, 6), "A cat is chasing the dog in town."),
        (PASSIVE, (5, 7), (0, 2), "A cat was seen by the dog."),
        (f"(VP (VBZ has) (VP (VBN eaten) {CAT}))", (0, 2), (4, 6), "A cat has eaten the dog."),
    ],
)
def test_agent_and_patient_are_found_and_exchanged(vp, agent, patient, text):
    tree = sentence(vp)
    roles = find_roles(tree)
    assert roles == (agent, patient)
    assert exchange(tree, roles) == text


@pytest.mark.parametrize(
    "tree",
    [
        sentence("(VP (VBZ sleeps))"),
        sentence(f"(VP (VBZ is) {CAT})"),
        sentence(f"(VP (VBZ meets) {CAT})"),
        sentence("(VP (VBZ sees) (NP (PRP him)))"),
        sentence("(VP (VBZ sees) (NP (PRP$ his) (NN cat)))"),
        sentence("(VP (VBZ sees) (NP (DT the) (NNS cats)))"),
        sentence("(VP (VBZ sees) (NP (NP (DT a) (NN cat)) (CC and) (NP (DT a) (NN cow))))"),
        sentence("(VP (VBZ sleeps) (NP (DT all) (NN day)))"),
        sentence("(VP (VBZ sees) (SBAR (IN that) (S (NP (PRP it)) (VP (VBZ rains)))))"),
        sentence(f"(VP (VBZ gives) {CAT} (NP (DT a) (NN bone)))"),
        sentence(f"(VP (VP (VBZ sees) {CAT}) (CC and) (VP (VBZ barks)))"),
        sentence("(VP (VBD was) (VP (VBN seen)))"),
        sentence(f"(VP (VBZ is) {CAT})", noun="(EX there)"),
        parse_tree("(ROOT (NP (DT a) (NN dog)))"),
        parse_tree("(ROOT (S (VP (VB look))))"),
    ],
)
def test_sentences_without_two_phrases_to_exchange_are_left_out(tree):
    assert find_roles(tree) is None


def test_the_subject_is_the_phrase_before_the_verb():
    opener = "(NP (DT This) (NN morning)) (, ,)"
    tree = parse_tree(f"(S {opener} (NP (DT the) (NN dog)) (VP (VBZ sees) {CAT}))")
    assert exchange(tree, find_roles(tree)) == "This morning, a cat sees the dog"


def test_the_number_of_a_phrase_is_that_of_its_head():
    long = "(NP (NP (DT the) (NN man)) (PP (IN with) (NP (NNS cats))))"
    tree = sentence(f"(VP (VBZ sees) {long})")
    assert exchange(tree, find_roles(tree)) == "The man with cats sees the dog."
    owned = "(NP (NP (DT the) (NN man) (POS 's)) (NNS cats))"
    assert find_roles(sentence(f"(VP (VBZ sees) {owned})")) is None
    two = "(NP (NP (DT a) (NN man)) (CC and) (NP (DT a) (NN cow)))"
    plural = sentence(f"(VP (VBP see) {two})", noun="(NNS dogs)")
    assert exchange(plural, find_roles(plural)) == "A man and a cow see the dogs."


def test_equal_phrases_are_not_exchanged():
    tree = sentence("(VP (VBZ sees) (NP (DT the) (NN dog)))")
    assert exchange(tree, find_roles(tree)) is None


# ---- the built-in corpus, where all is known

some_document = st.integers(0, 10**6).map(lambda number: document(2, number).sentences)


def with_subtrees(tree, replaced, start=0):
    """The tree with other subtrees at some spans, and the place of the word after it."""
    label, *children = tree
    if isinstance(children[0], str):
        return tree, start + 1
    parts, place = [], start
    for child in children:
        part, place = with_subtrees(child, replaced, place)
        parts.append(part)
    return replaced.get((start, place), (label, *parts)), place


def subtree(tree, span):
    found = {}

    def look(node, start):
        place = start
        for child in node[1:]:
            place = place + 1 if isinstance(child, str) else look(child, place)
        found[start, place] = node
        return place

    look(tree, 0)
    return found[span]


@settings(max_examples=60, deadline=None)
@given(some_document)
def test_rules_exchange_exactly_the_two_phrases_and_keep_agreement(sentences):
    for sentence in sentences:
        roles = find_roles(sentence.tree)
        text = roles and exchange(sentence.tree, roles)
        if not text:
            continue
        agent, patient = (subtree(sentence.tree, span) for span in roles)
        swapped, _ = with_subtrees(sentence.tree, {roles.agent: patient, roles.patient: agent})
        assert not list(verbs_that_disagree(swapped)), text
        assert parsed_sentence(swapped).text.lower() == text.lower()
        assert Counter(leaves(swapped)) == Counter(leaves(sentence.tree))


@settings(max_examples=60, deadline=None)
@given(some_document)
def test_rules_find_the_roles_that_the_grammar_put_there(sentences):
    for sentence in sentences:
        roles = find_roles(sentence.tree)
        if roles is not None:
            assert tuple(roles) in {(p.agent, p.patient) for p in sentence.roles}, sentence.text


@settings(max_examples=60, deadline=None)
@given(some_document)
def test_gold_roles_are_exchanged_and_nothing_else_and_agreement_is_kept(sentences):
    for sentence in sentences:
        swapped = swap_roles(sentence)
        if swapped is None:
            continue
        assert not list(verbs_that_disagree(swapped.tree)), swapped.text
        before, after = (main_clause(s.plan) for s in (sentence, swapped))
        assert (after.agent, after.patient) == (before.patient, before.agent)
        assert after._replace(agent=before.agent, patient=before.patient) == before


def test_both_ways_of_exchanging_are_often_possible():
    sentences = [s for number in range(40) for s in document(2, number).sentences]
    assert sum(find_roles(s.tree) is not None for s in sentences) > 20
    assert sum(swap_roles(s) is not None for s in sentences) > 10

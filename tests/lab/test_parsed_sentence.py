"""Trees and sentences: parsed sentences are spelled as ordinary text."""

import pytest

from tupe_jax.data.builtin import documents
from tupe_jax.data.labelled.penn_trees import Constituent, Leaf, constituents, leaves, parse_tree
from tupe_jax.lab.parsed_sentence import parsed_sentence, spelled

TREE = "(ROOT (S (NP (DT The) (NN cow)) (VP (VBD did) (RB n't) (VP (VB sleep))) (. .)))"


def test_a_tree_is_read_with_its_constituents():
    tree = parse_tree(TREE)
    assert list(leaves(tree))[:3] == [Leaf("DT", "The"), Leaf("NN", "cow"), Leaf("VBD", "did")]
    assert list(constituents(tree)) == [
        Constituent("ROOT", 0, 6),
        Constituent("S", 0, 6),
        Constituent("NP", 0, 2),
        Constituent("VP", 2, 5),
        Constituent("VP", 4, 5),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("(S (NP a)", "more opening"),
        ("(S (NP a)))", "more closing"),
        ("cow", "one tree"),
        ("(S (A a)) (S (B b))", "one tree"),
        ("(S)", "label"),
        ("(S a b)", "label"),
        ("(S a (NP b))", "label"),
        ("()", "label"),
    ],
)
def test_what_is_no_tree_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        parse_tree(wrong)


def test_the_built_in_corpus_is_written_as_it_is():
    sentences = [sentence for d in documents(0, 0, 60) for sentence in d.sentences]
    for sentence in sentences:
        assert parse_tree(sentence.bracketed) == sentence.tree
        assert list(constituents(sentence.tree)) == list(sentence.constituents)
        assert parsed_sentence(sentence.tree).text == sentence.text
    assert len(sentences) > 500


def test_clitics_go_back_to_their_word_and_the_first_capital_goes():
    sentence = parsed_sentence(parse_tree(TREE))
    assert sentence.tokens == ("the", "cow", "didn't", "sleep", ".")
    assert sentence.words == (0, 1, 2, 3)
    # The mark is no word; the inner VP, `sleep`, has one.
    assert sentence.constituents == ({0, 1, 2, 3}, {0, 1}, {2, 3}, {3})
    assert sentence.text == "The cow didn't sleep."
    name = parsed_sentence(parse_tree("(S (NP (NNP Ann)) (VP (VBZ 's) (VP (VBG singing))))"))
    assert name.tokens == ("Ann's", "singing")
    # `'s` alone is no word of the VP.
    assert name.constituents == ({0, 1}, set(), {1})


def test_marks_stand_beside_their_words():
    tokens = ["he", "said", ",", "``", "go", "''", "-LRB-", "now", "-RRB-", "."]
    assert spelled(tokens) == 'He said, "go" (now).'

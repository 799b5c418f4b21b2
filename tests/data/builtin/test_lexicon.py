"""The words: inflection, selection, and data files that do not contradict themselves."""

import pytest

from tupe_jax.data.builtin import morphology
from tupe_jax.data.builtin.lexicon import lexicon, topics
from tupe_jax.data.builtin.lexicon.entries import FRAMES, read_noun, read_verb
from tupe_jax.data.builtin.lexicon.reader import read_lexicon
from tupe_jax.data.builtin.random_stream import Urn, shuffled, stream


@pytest.mark.parametrize(
    ("base", "third", "past", "gerund"),
    [
        ("clean", "cleans", "cleaned", "cleaning"),
        ("bake", "bakes", "baked", "baking"),
        ("carry", "carries", "carried", "carrying"),
        ("play", "plays", "played", "playing"),
        ("watch", "watches", "watched", "watching"),
        ("chop", "chops", "chopped", "chopping"),
        ("fix", "fixes", "fixed", "fixing"),
        ("show", "shows", "showed", "showing"),
        ("agree", "agrees", "agreed", "agreeing"),
        ("open", "opens", "opened", "opening"),
        ("travel", "travels", "travelled", "travelling"),
        ("commit", "commits", "committed", "committing"),
        ("lie", "lies", "lied", "lying"),
    ],
)
def test_regular_verbs(base: str, third: str, past: str, gerund: str):
    assert morphology.third_person(base) == third
    assert morphology.past(base) == past
    assert morphology.gerund(base) == gerund


@pytest.mark.parametrize(
    ("following", "article"),
    [
        *(("apple", "an"), ("horse", "a"), ("honest", "an"), ("unicorn", "a"), ("useful", "a")),
        *(("umbrella", "an"), ("uncle", "an"), ("unhappy", "an"), ("unjust", "an")),
    ],
)
def test_the_article_follows_the_sound(following: str, article: str):
    assert morphology.article(following) == article


def test_irregular_words_are_spelt_out():
    assert read_noun("child/children", "person").plural == "children"
    assert not read_noun("hay/-", "crop").countable
    assert read_noun("queen.f", "person").gender == "f"
    assert read_noun("farm@on", "place").preposition == "on"
    grow = read_verb("grow/grew/grown", "transitive", frozenset())
    assert (grow.past, grow.participle, grow.gerund) == ("grew", "grown", "growing")
    think = read_verb("think/thought_about=-", "transitive", frozenset())
    assert (think.past, think.preposition, think.polarity) == ("thought", "about", -1)
    assert think.stative


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("dragon: smaug", "unknown category or kind 'dragon'"),
        ("transitive person > wyrm: ride", "unknown kind 'wyrm'"),
        ("person: king.x", "gender 'x'"),
    ],
)
def test_a_wrong_line_of_the_data_is_named(line: str, complaint: str):
    lines = [("words.txt:1", "[kinds]"), ("words.txt:2", "kind person: person/people")]
    with pytest.raises(ValueError, match=r"words\.txt:3") as error:
        read_lexicon([*lines, ("words.txt:3", line)])
    assert complaint in str(error.value)


def test_a_noun_has_one_meaning():
    lines = [("w:1", "kind person: person/people"), ("w:2", "kind tool: tool")]
    with pytest.raises(ValueError, match="'cook'"):
        read_lexicon([*lines, ("w:3", "person: cook"), ("w:4", "tool: cook")])


def test_every_topic_can_speak():
    for topic in topics():
        assert topic.nouns(frozenset({"person"}))
        assert topic.nouns(lexicon().kinds_below("place"))
        for frame in FRAMES:
            assert topic.verbs(frame, "person"), (topic.name, frame)
        for kind in ("person", "beast", "place", "tool"):
            assert topic.adjectives(kind)
    assert len(topics()) >= 20


def test_verbs_choose_their_arguments():
    (farm,) = [topic for topic in topics() if topic.name == "farm"]
    milk = next(v for v in farm.verbs("transitive", "person").items if v.base == "milk")
    assert {"beast", "bird"} <= milk.patients
    assert "tool" not in milk.patients
    assert "bleat" not in {verb.base for verb in farm.verbs("intransitive", "person").items}
    assert "bleat" in {verb.base for verb in farm.verbs("intransitive", "beast").items}


def test_hypernyms_go_up_the_tree_of_kinds():
    sparrow = next(n for n in lexicon().sections["forest"].nouns["bird"] if n.singular == "sparrow")
    assert [noun.singular for noun in lexicon().hypernyms(sparrow)] == ["bird", "animal"]


def test_lists_of_verbs_name_verbs_of_the_lexicon():
    known = {verb.base for section in lexicon().sections.values() for verb in section.verbs}
    for name in ("obligatory", "objectless", "to_only", "opinion", "symmetric", "one_sided"):
        missing = set(lexicon().lists[name]) - known
        assert not missing, (name, missing)


def test_urns_follow_their_weights():
    urn = Urn([("often", 3), ("seldom", 1)])
    draw = stream("urn", 0)
    drawn = [urn.draw(draw) for _ in range(4000)]
    assert 0.72 < drawn.count("often") / len(drawn) < 0.78


def test_streams_are_the_same_everywhere():
    draw = stream("document", 0, 7)
    assert [round(draw(), 12) for _ in range(2)] == [0.050478856964, 0.372036009163]
    assert shuffled(stream("order"), range(6)) == [4, 3, 2, 5, 0, 1]

"""Plans written by hand come out as the English, the tree and the roles that one expects."""

import pytest

from tupe_jax.data.builtin.lexicon import Adjective, Noun, Verb
from tupe_jax.data.builtin.plan import (
    Adverb,
    Clause,
    Complex,
    Compound,
    Coordination,
    Existential,
    Name,
    NounPhrase,
    PrepositionalPhrase,
    Pronoun,
    Property,
    Relative,
    Statement,
)
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.verb_group import BE

PERSON, BEAST = frozenset({"person"}), frozenset({"beast"})
FARMER = Noun("farmer", "farmers", "person")
HORSE = Noun("horse", "horses", "beast")
APPLE = Noun("apple", "apples", "fruit")
BARN = Noun("barn", "barns", "place")
FEED = Verb("feed", "fed", "fed", "transitive", PERSON, BEAST)
SLEEP = Verb("sleep", "slept", "slept", "intransitive", PERSON | BEAST)
GIVE = Verb("give", "gave", "given", "ditransitive", PERSON, frozenset({"fruit"}), PERSON | BEAST)
SAY = Verb("say", "said", "said", "reporting", PERSON)
TRY = Verb("try", "tried", "tried", "control", PERSON)
WAIT_FOR = Verb("wait", "waited", "waited", "transitive", PERSON, PERSON, preposition="for")

THE_FARMER = NounPhrase(FARMER, False, "the")
THE_FARMERS = NounPhrase(FARMER, True, "the")
THE_HORSES = NounPhrase(HORSE, True, "the")
AN_APPLE = NounPhrase(APPLE, False, "a")
OLD = Adjective("old")
IN_THE_BARN = PrepositionalPhrase("in", NounPhrase(BARN, False, "the"))


def test_a_relative_clause_stands_between_subject_and_verb():
    who_feeds = Relative("who", Clause(FEED, THE_FARMER, THE_HORSES, tense="present"), "agent")
    subject = THE_FARMER._replace(adjectives=(OLD,), relative=who_feeds)
    sentence = realise(Statement(Clause(SLEEP, subject, tense="present", negated=True)))
    assert sentence.text == "The old farmer who feeds the horses does not sleep."
    assert sentence.bracketed == (
        "(S (NP (NP (DT The) (JJ old) (NN farmer)) (SBAR (WHNP (WP who)) (S (VP (VBZ feeds) "
        "(NP (DT the) (NNS horses)))))) (VP (VBZ does) (RB not) (VP (VB sleep))) (. .))"
    )
    feeds, sleeps = sentence.roles
    assert sentence.phrase(feeds.agent) == "The old farmer"
    assert sentence.phrase(feeds.patient) == "the horses"
    assert sentence.phrase(sleeps.agent) == "The old farmer who feeds the horses"


def test_the_gap_may_be_the_object():
    clause = Clause(FEED, THE_FARMER, THE_HORSES, tense="present")
    subject = THE_HORSES._replace(relative=Relative("that", clause, "patient"))
    sentence = realise(Statement(Clause(SLEEP, subject, tense="present")))
    assert sentence.text == "The horses that the farmer feeds sleep."
    feeds, _ = sentence.roles
    assert (sentence.phrase(feeds.agent), sentence.phrase(feeds.patient)) == (
        "the farmer",
        "The horses",
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "The farmer gave an apple to the horses."),
        ({"recipient_first": True}, "The farmer gave the horses an apple."),
        ({"voice": "passive"}, "An apple was given to the horses by the farmer."),
        (
            {"voice": "recipient_passive"},
            "The horses were given an apple by the farmer.",
        ),
        ({"voice": "passive", "agent": None}, "An apple was given to the horses."),
        ({"tense": "present", "aspect": "perfect"}, "The farmer has given an apple to the horses."),
        ({"modal": "can", "negated": True}, "The farmer cannot give an apple to the horses."),
        ({"modal": "must", "negated": True}, "The farmer must not give an apple to the horses."),
        (
            {"aspect": "progressive", "negated": True},
            "The farmer was not giving an apple to the horses.",
        ),
        ({"frequency": "often"}, "The farmer often gave an apple to the horses."),
        (
            {"frequency": "often", "modal": "will", "voice": "passive"},
            "An apple will often be given to the horses by the farmer.",
        ),
    ],
)
def test_one_event_in_many_forms(changes: dict[str, object], text: str):
    sentence = realise(
        Statement(Clause(GIVE, THE_FARMER, AN_APPLE, THE_HORSES)._replace(**changes))
    )
    assert sentence.text == text
    (given,) = sentence.roles
    assert sentence.words[given.verb] in ("gave", "given", "give", "giving")
    assert sentence.phrase(given.patient).lower() == "an apple"
    assert sentence.phrase(given.recipient).lower() == "the horses"
    if changes.get("agent", "") is None:
        assert given.agent is None
    else:
        assert sentence.phrase(given.agent).lower() == "the farmer"


def test_prepositional_objects_keep_their_preposition():
    clause = Clause(WAIT_FOR, THE_FARMER, Pronoun("f", 0), tense="present")
    sentence = realise(Statement(clause))
    assert sentence.text == "The farmer waits for her."
    assert sentence.phrase(sentence.roles[0].patient) == "her"
    asked = Relative("who", Clause(WAIT_FOR, THE_FARMERS, THE_FARMER), "patient")
    subject = THE_FARMER._replace(relative=asked)
    sentence = realise(Statement(Clause(SLEEP, subject)))
    assert sentence.text == "The farmer who the farmers waited for slept."


def test_who_tries_is_who_does():
    feeding = Clause(FEED, THE_FARMERS, THE_HORSES)
    sentence = realise(Statement(Clause(TRY, THE_FARMERS, tense="present", complement=feeding)))
    assert sentence.text == "The farmers try to feed the horses."
    assert [p.agent for p in sentence.roles] == [(0, 2), (0, 2)]
    assert "(S (VP (TO to) (VP (VB feed) (NP (DT the) (NNS horses)))))" in sentence.bracketed


def test_coordination_is_plural_and_shares_its_subject():
    both = Coordination(Name("Anna", "f", 0), THE_FARMER)
    left = Clause(SLEEP, both, tense="present")
    right = Clause(FEED, both, THE_HORSES, tense="present")
    sentence = realise(Statement(Compound(left, "and", right, shared_subject=True)))
    assert sentence.text == "Anna and the farmer sleep and feed the horses."
    assert [p.agent for p in sentence.roles] == [(0, 4), (0, 4)]


def test_subordinate_clauses_on_either_side():
    main = Clause(SLEEP, Pronoun("m", 0))
    when = Clause(FEED, THE_FARMER, THE_HORSES)
    before = realise(Statement(Complex(main, "when", when, subordinate_first=True)))
    after = realise(Statement(Complex(main, "when", when, subordinate_first=False)))
    assert before.text == "When the farmer fed the horses, he slept."
    assert after.text == "He slept when the farmer fed the horses."
    assert "(VP (VBD slept) (SBAR (IN when) (S" in after.bracketed


def test_reports_properties_places_and_existence():
    inner = Clause(BE, THE_HORSES, tense="present", complement=Property(OLD, "very"))
    said = realise(Statement(Clause(SAY, Name("Anna", "f", 0), complement=inner)))
    assert said.text == "Anna said that the horses are very old."
    there = realise(Statement(Existential(NounPhrase(HORSE, True, "two"), IN_THE_BARN, "present")))
    assert there.text == "There are two horses in the barn."
    assert there.bracketed.startswith("(S (NP (EX There)) (VP (VBP are) (NP (CD two)")
    placed = Clause(BE, THE_FARMER, negated=True, complement=IN_THE_BARN)
    assert realise(Statement(placed)).text == "The farmer was not in the barn."


def test_owners_openers_and_articles():
    hers = AN_APPLE._replace(determiner="", owner=Pronoun("f", 0))
    annas = AN_APPLE._replace(determiner="", owner=Name("Anna", "f", 0))
    eat = Verb("eat", "ate", "eaten", "transitive", PERSON, frozenset({"fruit"}))
    opened = Statement(Clause(eat, THE_FARMER, annas), opener=IN_THE_BARN)
    assert realise(opened).text == "In the barn, the farmer ate Anna's apple."
    opened = Statement(Clause(eat, THE_FARMER, hers), opener=Adverb("then"))
    assert realise(opened).text == "Then the farmer ate her apple."
    an_old_farmer = NounPhrase(FARMER, False, "a", (OLD,))
    assert realise(Statement(Clause(SLEEP, an_old_farmer))).text == "An old farmer slept."

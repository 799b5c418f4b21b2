"""Sentiment: does the sentence praise or blame?

A negation turns the sentiment of a word round, and of two clauses that pull in opposite directions
the main clause (after `but`, not after `although`) decides; so counting words does not go far.
"""

from functools import cache

from tupe_jax.data.builtin.lexicon import Adjective, Noun, Topic, Verb, lexicon
from tupe_jax.data.builtin.phrases import Phrases, kinds_of, word_list
from tupe_jax.data.builtin.plan import (
    Adverb,
    Clause,
    Complex,
    Compound,
    NounPhrase,
    Property,
    Statement,
)
from tupe_jax.data.builtin.random_stream import Draw, Urn, pick, zipf
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.tasks.scene import scene
from tupe_jax.data.builtin.verb_group import BE
from tupe_jax.data.labelled.example import Example

LABELS = ("negative", "positive")
_NEGATION_RATE = 0.4
_SHAPES = Urn([("one", 45), ("and", 15), ("but", 20), ("although", 20)])


def example(draw: Draw, label: int) -> Example | None:
    """One sentence with the label, or None if the draw fails."""
    phrases = scene(draw)
    polarity = 1 if label else -1
    shape = _SHAPES.draw(draw)
    first = _opinion(draw, phrases, polarity if shape in ("one", "and") else -polarity)
    second = _opinion(draw, phrases, polarity)
    if first is None or second is None or first.agent == second.agent:
        return None
    if shape == "one":
        statement = Statement(first)
    elif shape == "although":
        statement = Statement(Complex(second, shape, first, subordinate_first=draw() < 0.5))
    else:
        statement = Statement(Compound(first, shape, second))
    return Example(realise(statement).text, None, label)


def _opinion(draw: Draw, phrases: Phrases, polarity: int) -> Clause | None:
    """A clause of the polarity, by a word of the polarity or by denying one of the opposite."""
    negated = draw() < _NEGATION_RATE
    wanted = -polarity if negated else polarity
    chance = draw()
    if chance < 0.55:
        clause = _quality(draw, phrases, wanted)
    elif chance < 0.85:
        clause = _reaction(draw, phrases, wanted)
    else:
        clause = _performance(draw, phrases, wanted)
    if clause is None or not negated:
        return clause
    if draw() < 0.25 and not clause.verb.is_be:
        return clause._replace(frequency="never")
    return clause._replace(negated=True)


def _quality(draw: Draw, phrases: Phrases, polarity: int) -> Clause | None:
    """The concert was very dull."""
    noun = phrases.noun(kinds_of("person", "thing", "place", "idea", "event", "edible", "animal"))
    adjectives = _polar_adjectives(phrases.topic, noun.kind, polarity)
    if not adjectives:
        return None
    degree = word_list("degree").draw(draw) if draw() < 0.3 else ""
    degree = "" if degree == "too" else degree  # "too kind" is no praise
    complement = Property(adjectives.draw(draw), degree)
    return Clause(BE, _topic_phrase(draw, noun), tense=phrases.tense, complement=complement)


def _reaction(draw: Draw, phrases: Phrases, polarity: int) -> Clause | None:
    """The visitors enjoyed the concert."""
    verbs = _polar_verbs(phrases.topic, polarity)
    if not verbs:
        return None
    verb = verbs.draw(draw)
    agent = _topic_phrase(draw, phrases.noun(kinds_of("person")))
    patient = _topic_phrase(draw, phrases.noun(verb.patients))
    return Clause(verb, agent, patient, tense=phrases.tense)


def _performance(draw: Draw, phrases: Phrases, polarity: int) -> Clause | None:
    """The soprano sang beautifully."""
    verbs = phrases.topic.verbs("intransitive", "person")
    verb = verbs.draw(draw)
    if verb.polarity:
        return None
    manner = Adverb(_polar_manners(polarity).draw(draw))
    agent = _topic_phrase(draw, phrases.noun(kinds_of("person")))
    return Clause(verb, agent, tense=phrases.tense, adjuncts=(manner,))


def _topic_phrase(draw: Draw, noun: Noun) -> NounPhrase:
    plural = draw() < 0.25 and noun.countable
    determiner = (
        "the" if draw() < 0.7 else pick(draw, ("these", "those") if plural else ("this", "that"))
    )
    return NounPhrase(noun, plural, determiner)


@cache
def _polar_adjectives(topic: Topic, kind: str, polarity: int) -> Urn[Adjective]:
    known = dict.fromkeys(topic.adjectives(kind).items)
    return Urn(zipf([adjective for adjective in known if adjective.polarity == polarity]))


@cache
def _polar_verbs(topic: Topic, polarity: int) -> Urn[Verb]:
    """Verbs that express what the agent thinks of the patient."""
    suited = [
        verb
        for verb in topic.verbs("transitive", "person").items
        if verb.polarity == polarity and verb.base in lexicon().lists["opinion"]
    ]
    return Urn(zipf(suited))


@cache
def _polar_manners(polarity: int) -> Urn[str]:
    mark = "+" if polarity > 0 else "-"
    return Urn(zipf([word[:-1] for word in lexicon().lists["manner"] if word.endswith(mark)]))

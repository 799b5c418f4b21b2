"""Draws noun phrases, adjuncts and relative clauses that suit a topic."""

from functools import cache

from tupe_jax.data.builtin.lexicon import Adjective, Noun, Topic, lexicon
from tupe_jax.data.builtin.plan import (
    Adverb,
    Clause,
    FixedPhrase,
    NounPhrase,
    PrepositionalPhrase,
    Property,
    Relative,
    Skeleton,
    Tense,
)
from tupe_jax.data.builtin.random_stream import Draw, Urn, zipf
from tupe_jax.data.builtin.verb_group import BE
from tupe_jax.data.builtin.voice import may_be_passive

_SINGULAR = Urn(
    [("the", 46), ("a", 40), ("this", 5), ("that", 3), ("every", 4), ("each", 2)],
)
_PLURAL = Urn(
    [
        *(("the", 38), ("", 22), ("some", 11), ("many", 7), ("two", 6), ("several", 4)),
        *(("these", 3), ("three", 3), ("all", 3), ("most", 2), ("those", 2), ("few", 1)),
    ]
)
_MASS = Urn([("the", 60), ("some", 20), ("", 20)])
_NEAR = Urn([("near", 4), ("behind", 3), ("beside", 2), ("opposite", 1)])
_PLURAL_RATE = 0.32
_ADJECTIVE_RATE, _SECOND_ADJECTIVE_RATE = 0.34, 0.08
_MODIFIER_RATE, _RELATIVE_RATE = 0.09, 0.09

_TAGS_OF_TIME_WORDS = {
    **dict.fromkeys(("in", "on", "at", "after"), "IN"),
    **dict.fromkeys(("the", "every"), "DT"),
    **dict.fromkeys(("last", "next"), "JJ"),
    **dict.fromkeys(("Monday", "Sunday", "Friday"), "NNP"),
    **dict.fromkeys(("now", "soon", "ago"), "RB"),
    "Mondays": "NNPS",
    "days": "NNS",
    "two": "CD",
}


@cache
def word_list(name: str) -> Urn[str]:
    """A list of the lexicon, such as `manner` or `names male`."""
    return Urn(zipf([word.rstrip("+-") for word in lexicon().lists[name]]))


@cache
def time_phrases(name: str) -> Urn[FixedPhrase]:
    """The time expressions that go with `past`, `present` or `future`."""
    return Urn(zipf([_time_phrase(text) for text in lexicon().lists[f"time {name}"]]))


def _time_phrase(text: str) -> FixedPhrase:
    words = tuple(text.split("_"))
    tags = tuple(_TAGS_OF_TIME_WORDS.get(word, "NN") for word in words)
    tree: Skeleton
    if tags[0] == "IN":
        tree = ("PP", "IN", ("NP", *tags[1:]))
    elif tags == ("RB",):
        tree = ("ADVP", "RB")
    elif tags[-1] == "RB":
        tree = ("ADVP", ("NP", *tags[:-1]), "RB")
    else:
        tree = ("NP", *tags)
    return FixedPhrase(words, tree)


@cache
def kinds_of(*names: str) -> frozenset[str]:
    """The kinds and everything below them."""
    return frozenset[str]().union(*(lexicon().kinds_below(name) for name in names))


class Phrases:
    """Phrases of one topic, drawn from one stream."""

    __slots__ = ("_draw", "tense", "topic")

    def __init__(self, draw: Draw, topic: Topic, tense: Tense) -> None:
        self._draw = draw
        self.topic = topic
        self.tense = tense

    def noun(self, kinds: frozenset[str]) -> Noun:
        """A noun of one of the kinds."""
        return self.topic.nouns(kinds).draw(self._draw)

    def adjective(self, noun: Noun) -> Adjective:
        """An adjective that suits the noun."""
        return self.topic.adjectives(noun.kind).draw(self._draw)

    def adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        """None, one or two adjectives; the two say neither the same nor the opposite."""
        draw = self._draw
        if draw() >= _ADJECTIVE_RATE:
            return ()
        first = self.adjective(noun)
        if draw() < _SECOND_ADJECTIVE_RATE:
            second = self.adjective(noun)
            opposites = lexicon().are_opposites(first.word, second.word)
            if second.word != first.word and not opposites:
                return (first, second)
        return (first,)

    def draw_plural(self, noun: Noun) -> bool:
        """A number for the noun."""
        return self._draw() < _PLURAL_RATE and noun.countable

    def noun_phrase(self, kinds: frozenset[str], may_branch: bool = True) -> NounPhrase:
        """Any noun phrase with a noun of the kinds; `may_branch` allows clauses and PPs inside."""
        draw = self._draw
        noun = self.noun(kinds)
        plural = self.draw_plural(noun)
        urn = _PLURAL if plural else (_SINGULAR if noun.countable else _MASS)
        phrase = NounPhrase(noun, plural, urn.draw(draw), self.adjectives(noun))
        return self.branch(phrase) if may_branch else phrase

    def branch(self, phrase: NounPhrase) -> NounPhrase:
        """Perhaps add a prepositional phrase or a relative clause."""
        chance = self._draw()
        if chance < _MODIFIER_RATE:
            return phrase._replace(modifier=self.modifier(phrase.noun))
        if chance < _MODIFIER_RATE + _RELATIVE_RATE:
            return phrase._replace(relative=self.relative(phrase))
        return phrase

    def modifier(self, noun: Noun) -> PrepositionalPhrase:
        """A PP for a noun: in the barn, near the old horse, with the red coat."""
        chance = self._draw()
        if noun.kind == "person" and chance < 0.35:
            belongings = kinds_of("garment", "instrument", "container", "tool")
            return PrepositionalPhrase("with", self.noun_phrase(belongings, may_branch=False))
        if chance < 0.6 and noun.kind not in kinds_of("place"):
            return self.place()
        neighbours = kinds_of("furniture", "tree", "vehicle", "building", "person")
        near = self.noun_phrase(neighbours, may_branch=False)
        return PrepositionalPhrase(_NEAR.draw(self._draw), near)

    def place(self) -> PrepositionalPhrase:
        """In the barn, on the old farm."""
        noun = self.noun(kinds_of("place"))
        phrase = NounPhrase(noun, False, "the", self.adjectives(noun))
        return PrepositionalPhrase(noun.preposition, phrase)

    def manner(self) -> Adverb:
        """Quickly, carefully."""
        return Adverb(word_list("manner").draw(self._draw))

    def relative(self, head: NounPhrase) -> Relative:
        """A relative clause for the noun, which is its agent or its patient."""
        draw, tense, kind = self._draw, self.tense, head.noun.kind
        gap = NounPhrase(head.noun, head.plural)
        if kind == "person":
            pronoun = "who" if draw() < 0.85 else "that"
        else:
            pronoun = "that" if draw() < 0.7 else "which"
        chance = draw()
        active = self.topic.verbs("transitive", kind)
        if chance < 0.45 and active:
            verb = active.draw(draw)
            patient = self.noun_phrase(verb.patients, may_branch=False)
            return Relative(pronoun, Clause(verb, gap, patient, tense=tense), "agent")
        idle = self.topic.verbs("intransitive", kind)
        if chance < 0.6 and idle:
            verb = idle.draw(draw)
            adjuncts = (self.place(),) if draw() < 0.4 else ()
            clause = Clause(verb, gap, tense=tense, adjuncts=adjuncts)
            return Relative(pronoun, clause, "agent")
        passive = self.topic.verbs_taking(kind)
        if chance < 0.9 and passive:
            verb = passive.draw(draw)
            agent = self.noun_phrase(verb.agents, may_branch=False)
            if agent.determiner == "that":
                agent = agent._replace(determiner="the")  # not "that that farmer sees"
            clause = Clause(verb, agent, gap, tense=tense)
            if draw() < 0.35 and may_be_passive(verb):
                clause = clause._replace(voice="passive")
            return Relative(pronoun, clause, "patient")
        clause = Clause(BE, gap, tense=tense, complement=Property(self.adjective(head.noun)))
        return Relative(pronoun, clause, "agent")

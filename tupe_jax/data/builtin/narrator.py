"""Generates a document: sentences about a small cast, in one topic and one tense."""

from tupe_jax.data.builtin.clauses import Clauses
from tupe_jax.data.builtin.discourse import Discourse
from tupe_jax.data.builtin.lexicon import Topic, lexicon
from tupe_jax.data.builtin.phrases import Phrases, kinds_of, time_phrases, word_list
from tupe_jax.data.builtin.plan import (
    Adjunct,
    Adverb,
    Clause,
    Complex,
    Compound,
    Existential,
    NounPhrase,
    Statement,
    Tense,
)
from tupe_jax.data.builtin.random_stream import Draw, Urn

_STATEMENTS = Urn(
    [("simple", 58), ("compound", 12), ("shared", 10), ("complex", 12), ("existential", 8)]
)
_CONJUNCTIONS = Urn([("and", 5), ("but", 3), ("so", 1)])
_SUBORDINATORS = Urn(
    [("when", 6), ("because", 5), ("although", 3), ("while", 3), ("after", 2), ("before", 2)]
)
_INDEFINITE_SINGULAR = Urn([("a", 9), ("no", 1)])
_INDEFINITE_PLURAL = Urn([("some", 4), ("many", 3), ("two", 3), ("several", 1), ("no", 1)])


class Narrator:
    """The state of one document while it is generated."""

    __slots__ = ("_clauses", "_discourse", "_draw", "_phrases", "_tense")

    def __init__(self, draw: Draw, topic: Topic) -> None:
        self._draw = draw
        self._tense: Tense = "present" if draw() < 0.55 else "past"
        self._phrases = Phrases(draw, topic, self._tense)
        self._discourse = Discourse(draw)
        self._clauses = Clauses(draw, self._phrases, self._discourse)
        self._introduce_cast()

    def _introduce_cast(self) -> None:
        draw = self._draw
        if draw() < 0.6:
            self._add_named_person()
        for _ in range(1 + int(draw() * 3)):
            self._clauses.participants.add_entity(kinds_of("person"))
        if draw() < (0.5 if "beast" in self._phrases.topic.agent_kinds else 0.1):
            self._clauses.participants.add_entity(kinds_of("animal"))

    def _add_named_person(self) -> None:
        gender = "m" if self._draw() < 0.5 else "f"
        people = lexicon().sections["common"].nouns["person"]
        noun = next(person for person in people if person.gender == gender)
        names = word_list("names male" if gender == "m" else "names female")
        self._discourse.add(noun, False, names.draw(self._draw))

    def statement(self) -> Statement:
        """The next sentence."""
        self._discourse.next_sentence()
        draw = self._draw
        shape = _STATEMENTS.draw(draw)
        if shape == "existential":
            return Statement(self._existential())
        if shape == "complex":
            return Statement(self._complex())
        opener = self._opener() if draw() < 0.2 else None
        first = self._clauses.clause(may_have_setting=opener is None)
        if shape == "compound":
            self._discourse.next_clause()
            second = self._clauses.clause(may_have_setting=False)
            return Statement(Compound(first, _CONJUNCTIONS.draw(draw), second), opener)
        if shape == "shared":
            return Statement(self._shared_subject(first), opener)
        return Statement(first, opener)

    def _complex(self) -> Complex:
        """Two clauses in the order of mention, so that pronouns follow what they refer to."""
        first = self._clauses.clause(may_embed=False)
        self._discourse.next_clause()
        second = self._clauses.clause(may_embed=False, may_have_setting=False)
        subordinator = _SUBORDINATORS.draw(self._draw)
        # "When she will come" is not English: a subordinate clause uses the present for the future.
        if self._draw() < 0.45:
            return Complex(second, subordinator, first._replace(modal=""), subordinate_first=True)
        return Complex(first, subordinator, second._replace(modal=""), subordinate_first=False)

    def _shared_subject(self, first: Clause) -> Clause | Compound:
        """Feeds the horses and cleans the barn."""
        agent = first.agent
        if first.voice != "active" or agent is None or first.verb.is_be:
            return first
        verbs = self._phrases.topic.verbs("transitive", self._discourse.noun(agent).kind)
        if not verbs:
            return first
        verb = verbs.draw(self._draw)
        second = Clause(
            verb,
            agent,
            self._clauses.participants.patient(verb, agent),
            tense=first.tense,
            aspect="simple" if verb.stative else first.aspect,
            modal=first.modal,
        )
        return Compound(first, "and" if self._draw() < 0.8 else "but", second, shared_subject=True)

    def _opener(self) -> Adjunct:
        draw = self._draw
        chance = draw()
        if chance < 0.45 and self._discourse.has_begun:
            return Adverb(word_list("connective").draw(draw))
        if chance < 0.75:
            return time_phrases(self._tense).draw(draw)
        return self._phrases.place()

    def _existential(self) -> Existential:
        draw, phrases = self._draw, self._phrases
        if draw() < 0.6:
            noun = phrases.noun(kinds_of("person", "animal"))
        else:
            noun = phrases.noun(kinds_of("thing", "edible", "plant"))
        plural = phrases.draw_plural(noun)
        if plural:
            determiner = _INDEFINITE_PLURAL.draw(draw)
        else:
            determiner = _INDEFINITE_SINGULAR.draw(draw) if noun.countable else "some"
        phrase = NounPhrase(noun, plural, determiner, phrases.adjectives(noun))
        self._discourse.note(phrase)
        return Existential(phrase, phrases.place(), self._tense)

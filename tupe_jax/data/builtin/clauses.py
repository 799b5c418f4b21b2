"""Draws clauses: what happens, when and how, to the participants that suit it."""

from tupe_jax.data.builtin.discourse import Discourse
from tupe_jax.data.builtin.lexicon import Adjective, Frame, Verb, lexicon
from tupe_jax.data.builtin.participants import Participants, entities_of
from tupe_jax.data.builtin.phrases import Phrases, kinds_of, time_phrases, word_list
from tupe_jax.data.builtin.plan import (
    Aspect,
    Clause,
    NounPhrase,
    Phrase,
    Pronoun,
    Property,
    is_plural,
)
from tupe_jax.data.builtin.random_stream import Draw, Urn
from tupe_jax.data.builtin.verb_group import BE
from tupe_jax.data.builtin.voice import may_be_passive, other_voice

_FRAMES: Urn[Frame | None] = Urn(
    [
        ("transitive", 52),
        ("intransitive", 11),
        ("ditransitive", 9),
        ("dative", 3),
        ("reporting", 6),
        ("control", 6),
        (None, 13),  # is old, is a farmer, is in the barn
    ]
)
_MODALS = {
    "present": Urn([("will", 5), ("can", 4), ("must", 2), ("should", 2), ("may", 1)]),
    "past": Urn([("could", 4), ("would", 3), ("might", 1)]),
}
_ASPECTS: Urn[Aspect] = Urn([("simple", 76), ("progressive", 14), ("perfect", 10)])
_ADVERBIALS = Urn([("none", 54), ("frequency", 10), ("manner", 12), ("place", 12), ("time", 12)])
_PREDICATIVES = Urn([("property", 62), ("place", 18), ("noun", 20)])
_AGENTLESS_RATE = 0.04
_MODAL_RATE, _NEGATION_RATE = 0.12, 0.13
_PASSIVE_RATE, _PROGRESSIVE_PASSIVE_RATE = 0.22, 0.05  # "is being fed" is rare


class Clauses:
    """Clauses of one document."""

    __slots__ = ("_discourse", "_draw", "_phrases", "participants")

    def __init__(self, draw: Draw, phrases: Phrases, discourse: Discourse) -> None:
        self._draw = draw
        self._phrases = phrases
        self._discourse = discourse
        self.participants = Participants(draw, phrases, discourse)

    def clause(self, may_embed: bool = True, may_have_setting: bool = True) -> Clause:
        """A clause about somebody; it may hold a clause, and say when and where."""
        draw = self._draw
        if draw() < _AGENTLESS_RATE:
            return self._agentless()
        agent = self.participants.agent()
        kind = self._discourse.noun(agent).kind
        frame = _FRAMES.draw(draw)
        if frame in ("reporting", "control") and not may_embed:
            frame = "transitive"
        if frame is not None:
            topic = self._phrases.topic
            verbs = topic.verbs(frame, kind) or topic.verbs("intransitive", kind)
            if verbs:
                return self._with_verb(verbs.draw(draw), agent, may_have_setting)
        return self._copular(agent, kind, may_have_setting)

    def _with_verb(self, verb: Verb, agent: Phrase, may_have_setting: bool) -> Clause:
        draw = self._draw
        modal = _MODALS[self._phrases.tense].draw(draw) if draw() < _MODAL_RATE else ""
        clause = Clause(
            verb,
            agent,
            tense=self._phrases.tense,
            aspect="simple" if modal or verb.stative else _ASPECTS.draw(draw),
            modal=modal,
            negated=draw() < _NEGATION_RATE and not _is_nobody(agent),
        )
        if verb.frame == "reporting":
            self._discourse.next_clause()
            inner = self.clause(may_embed=False, may_have_setting=False)
            return clause._replace(aspect="simple", complement=inner)
        if verb.frame == "control":
            return clause._replace(aspect="simple", complement=self._infinitive(agent))
        if verb.patients:
            clause = self._with_objects(clause, agent)
        return self._with_adverbial(clause, may_have_setting)

    def _with_objects(self, clause: Clause, agent: Phrase) -> Clause:
        draw, verb = self._draw, clause.verb
        if verb.object_optional and draw() < 0.12:
            return clause
        patient = self.participants.patient(verb, agent, clause.negated)
        clause = clause._replace(patient=patient)
        if verb.recipients:
            # "Gave the girl it" is hardly English.
            may_be_first = verb.frame == "ditransitive" and not isinstance(patient, Pronoun)
            clause = clause._replace(
                recipient=self.participants.recipient(verb, agent, patient),
                recipient_first=may_be_first and draw() < 0.55,
            )
        progressive = clause.aspect == "progressive"
        rate = _PROGRESSIVE_PASSIVE_RATE if progressive else _PASSIVE_RATE
        passive = other_voice(clause) if draw() < rate else None
        if passive is None:
            return clause
        # To leave out an entity would leave later pronouns without what they stand for.
        drops_agent = not entities_of(agent) and draw() < 0.6
        return passive._replace(agent=None) if drops_agent else passive

    def _agentless(self) -> Clause:
        """The vaccine has been tested."""
        draw, participants = self._draw, self.participants
        known = participants.known(kinds_of("thing", "edible", "plant", "idea", "animal", "person"))
        patient = self._discourse.refer(known or participants.add_entity(kinds_of("thing")))
        verbs = self._phrases.topic.verbs_taking(self._discourse.noun(patient).kind)
        verb = verbs.draw(draw)
        while not may_be_passive(verb):
            verb = verbs.draw(draw)
        clause = Clause(
            verb,
            None,
            patient,
            voice="passive",
            tense=self._phrases.tense,
            aspect="simple" if verb.stative or draw() < 0.7 else "perfect",
            negated=draw() < _NEGATION_RATE,
        )
        return self._with_adverbial(clause, may_have_setting=False)

    def _infinitive(self, agent: Phrase) -> Clause:
        """What somebody wants or tries to do; nobody tries to be in a state."""
        frame: Frame = "transitive" if self._draw() < 0.75 else "intransitive"
        verbs = self._phrases.topic.verbs(frame, self._discourse.noun(agent).kind)
        verb = verbs.draw(self._draw)
        while verb.stative:
            verb = verbs.draw(self._draw)
        patient = self.participants.patient(verb, agent) if verb.patients else None
        return Clause(verb, agent, patient)

    def _copular(self, subject: Phrase, kind: str, may_have_setting: bool) -> Clause:
        """Is (very) old, is an honest farmer, is in the barn."""
        draw, phrases = self._draw, self._phrases
        negated = draw() < _NEGATION_RATE and not _is_nobody(subject)
        often = draw() < 0.06 and not negated
        clause = Clause(
            BE,
            subject,
            tense=phrases.tense,
            negated=negated,
            frequency=word_list("frequency").draw(draw) if often else "",
        )
        way = _PREDICATIVES.draw(draw) if may_have_setting else "property"
        adjective = phrases.topic.adjectives(kind).draw(draw)
        if way == "property" and not _clashes(subject, adjective):
            degree = word_list("degree").draw(draw) if draw() < 0.25 else ""
            return clause._replace(complement=Property(adjective, degree))
        if way == "noun" and kind == "person" and not isinstance(subject, NounPhrase):
            noun, gender = phrases.noun(kinds_of("person")), self._discourse.gender(subject)
            if not (noun.gender and gender) or noun.gender == gender:
                plural = is_plural(subject)
                shown = (phrases.adjective(noun),)
                predicate = NounPhrase(noun, plural, "" if plural else "a", shown)
                return clause._replace(complement=predicate)
        return clause._replace(complement=phrases.place())

    def _with_adverbial(self, clause: Clause, may_have_setting: bool) -> Clause:
        """Perhaps add how often, how, where or when."""
        draw, verb = self._draw, clause.verb
        way = _ADVERBIALS.draw(draw)
        if way == "frequency":
            if not clause.negated and clause.aspect == "simple":
                return clause._replace(frequency=word_list("frequency").draw(draw))
        elif way == "manner":
            if not verb.stative:
                return clause._replace(adjuncts=(self._phrases.manner(),))
        elif way == "place":
            if may_have_setting and not verb.stative and "place" not in verb.patients:
                return clause._replace(adjuncts=(self._phrases.place(),))
        elif way == "time" and may_have_setting and clause.aspect != "perfect":
            when = {"": self._phrases.tense, "will": "future"}.get(clause.modal)
            if when is not None:
                return clause._replace(adjuncts=(time_phrases(when).draw(draw),))
        return clause


def _is_nobody(phrase: Phrase) -> bool:
    """No farmer: denies the clause already."""
    return isinstance(phrase, NounPhrase) and phrase.determiner == "no"


def _clashes(subject: Phrase, adjective: Adjective) -> bool:
    """Whether the subject already says the adjective, or its opposite."""
    said = subject.adjectives if isinstance(subject, NounPhrase) else ()
    return any(a == adjective or lexicon().are_opposites(a.word, adjective.word) for a in said)

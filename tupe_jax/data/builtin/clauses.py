"""Draws clauses about the entities of a document: who does what to whom, when and how."""

from tupe_jax.data.builtin.discourse import Discourse, Entity
from tupe_jax.data.builtin.lexicon import Adjective, Frame, Verb, lexicon
from tupe_jax.data.builtin.phrases import (
    Phrases,
    kinds_of,
    time_phrases,
    word_list,
)
from tupe_jax.data.builtin.plan import (
    Aspect,
    Clause,
    Coordination,
    NounPhrase,
    Phrase,
    Pronoun,
    Property,
    is_plural,
)
from tupe_jax.data.builtin.random_stream import Draw, Urn, pick
from tupe_jax.data.builtin.verb_group import BE
from tupe_jax.data.builtin.voice import may_be_passive, other_voice

_LARGEST_CAST = 9
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
_MODAL_RATE, _NEGATION_RATE, _PASSIVE_RATE = 0.12, 0.13, 0.22
_AGENTLESS_RATE = 0.04


class Clauses:
    """Clauses of one document."""

    __slots__ = ("_draw", "_last_agent", "discourse", "phrases")

    def __init__(self, draw: Draw, phrases: Phrases, discourse: Discourse) -> None:
        self._draw = draw
        self._last_agent: Entity | None = None
        self.phrases = phrases
        self.discourse = discourse

    def clause(self, may_embed: bool = True, may_have_setting: bool = True) -> Clause:
        """A clause about somebody; it may hold a clause, and say when and where."""
        draw = self._draw
        if draw() < _AGENTLESS_RATE:
            return self._agentless()
        agent = self._agent()
        kind = self.discourse.noun(agent).kind
        frame = _FRAMES.draw(draw)
        if frame is None:
            return self._copular(agent, kind, may_have_setting)
        if frame in ("reporting", "control") and not may_embed:
            frame = "transitive"
        topic = self.phrases.topic
        verbs = topic.verbs(frame, kind) or topic.verbs("intransitive", kind)
        if not verbs:
            return self._copular(agent, kind, may_have_setting)
        return self.with_verb(verbs.draw(draw), agent, may_have_setting)

    def with_verb(self, verb: Verb, agent: Phrase, may_have_setting: bool = True) -> Clause:
        """A clause with the given verb and agent; everything else is drawn."""
        draw = self._draw
        negative_subject = isinstance(agent, NounPhrase) and agent.determiner == "no"
        modal = _MODALS[self.phrases.tense].draw(draw) if draw() < _MODAL_RATE else ""
        clause = Clause(
            verb,
            agent,
            tense=self.phrases.tense,
            aspect="simple" if modal or verb.stative else _ASPECTS.draw(draw),
            modal=modal,
            negated=draw() < _NEGATION_RATE and not negative_subject,
        )
        if verb.frame == "reporting":
            self.discourse.next_clause()
            return clause._replace(aspect="simple", complement=self.clause(False, False))
        if verb.frame == "control":
            return clause._replace(aspect="simple", complement=self._infinitive(agent))
        if verb.patients:
            clause = self._with_objects(clause)
        return self._with_adverbs(clause, may_have_setting)

    def patient(self, verb: Verb, agent: Phrase, negated: bool = False) -> Phrase:
        """Whom or what the verb is done to."""
        draw, discourse, phrases = self._draw, self.discourse, self.phrases
        kinds = verb.patients
        chance = draw()
        if chance < 0.4:
            known = self._known(kinds, agent)
            if known is not None:
                return discourse.refer(known)
        if chance > 0.98 and "person" in kinds and discourse.noun(agent).kind == "person":
            itself = self._reflexive(agent)
            if itself is not None:
                return itself
        if chance > 0.75 and len(discourse.entities) < _LARGEST_CAST:
            entity = self.add_entity(kinds)
            if entity.number not in _entities(agent):
                return discourse.refer(entity)
        phrase = phrases.noun_phrase(kinds)
        known = discourse.entity_called(phrase.noun)
        if known is not None and known.number not in _entities(agent):
            return discourse.refer(known)
        if phrase.noun is discourse.noun(agent):
            phrase = phrase._replace(determiner="other" if phrase.plural else "another")
        elif negated and phrase.determiner in ("some", "", "several", "few"):
            phrase = phrase._replace(determiner="any")
        elif 0.6 < chance < 0.7:
            phrase = self._owned(phrase, agent)
        discourse.note(phrase)
        if chance > 0.71 or phrase.relative is not None:
            return phrase
        if 0.4 < chance < 0.44:
            other = phrases.noun_phrase(kinds, may_branch=False)
            if other.noun is not phrase.noun:
                both = Coordination(phrase, other)
                discourse.note(both)
                return both
        return phrase

    def add_entity(self, kinds: frozenset[str]) -> Entity:
        """An entity of one of the kinds, new unless the document knows the drawn noun already."""
        noun = self.phrases.noun(kinds)
        known = self.discourse.entity_called(noun)
        if known is not None:
            return known
        entity = self.discourse.add(noun, self.phrases.is_plural(noun))
        adjectives = self.phrases.adjectives(noun)
        entity.adjective = adjectives[0] if adjectives else None
        return entity

    # ---- parts of clauses

    def _agent(self) -> Phrase:
        """Mostly an entity of the document, often the one that acted last."""
        draw, discourse = self._draw, self.discourse
        chance = draw()
        if chance < 0.42 and self._last_agent is not None:
            return discourse.refer(self._last_agent)
        actors = kinds_of("person", "animal")
        if chance < 0.8:
            cast = [entity for entity in discourse.entities if entity.noun.kind in actors]
            self._last_agent = entity = pick(draw, cast)
            phrase = discourse.refer(entity)
            if chance > 0.76:
                other = pick(draw, cast)
                if other is not entity and not isinstance(phrase, Pronoun):
                    phrase = Coordination(phrase, discourse.refer(other, may_be_pronoun=False))
                    discourse.note(phrase)
            return phrase
        phrase = self.phrases.noun_phrase(
            self.phrases.topic.agent_kinds if chance > 0.93 else actors
        )
        known = discourse.entity_called(phrase.noun)
        if known is not None:
            return discourse.refer(known)
        if chance > 0.98 and phrase.determiner in ("the", "a"):
            phrase = phrase._replace(determiner="no")
        discourse.note(phrase)
        return phrase

    def _known(self, kinds: frozenset[str], *others: Phrase | None) -> Entity | None:
        """An entity of the kinds that is none of the others."""
        taken = {number for phrase in others for number in _entities(phrase)}
        suited = [
            entity
            for entity in self.discourse.entities
            if entity.noun.kind in kinds and entity.number not in taken
        ]
        return pick(self._draw, suited) if suited else None

    def _reflexive(self, agent: Phrase) -> Pronoun | None:
        numbers = _entities(agent)
        if len(numbers) != 1:
            return None
        entity = self.discourse.entities[numbers[0]]
        return Pronoun(entity.pronoun, entity.number, reflexive=True)

    def _owned(self, phrase: NounPhrase, agent: Phrase) -> NounPhrase:
        """The phrase with `her` (the agent's) or `the farmer's` instead of its determiner."""
        numbers = _entities(agent)
        if len(numbers) == 1 and phrase.noun.kind != "place" and self._draw() < 0.7:
            entity = self.discourse.entities[numbers[0]]
            return phrase._replace(determiner="", owner=Pronoun(entity.pronoun, entity.number))
        owner = self._known(kinds_of("person"), agent)
        if owner is None or owner.plural:
            return phrase
        name = self.discourse.refer(owner, may_be_pronoun=False)
        return phrase._replace(determiner="", owner=name)

    def _with_objects(self, clause: Clause) -> Clause:
        draw, verb, agent = self._draw, clause.verb, clause.agent
        assert agent is not None
        if verb.object_optional and draw() < 0.12:
            return clause
        patient = self.patient(verb, agent, clause.negated)
        clause = clause._replace(patient=patient)
        if verb.recipients:
            known = self._known(verb.recipients, agent, patient)
            if known is not None and draw() < 0.7:
                recipient = self.discourse.refer(known)
            else:
                recipient = self.phrases.noun_phrase(verb.recipients, may_branch=False)
                self.discourse.note(recipient)
            first = verb.frame == "ditransitive" and draw() < 0.55
            # "gave the girl it" is hardly English.
            first = first and not isinstance(patient, Pronoun)
            clause = clause._replace(recipient=recipient, recipient_first=first)
        # "Is being fed" is rare.
        passive_rate = _PASSIVE_RATE if clause.aspect != "progressive" else 0.05
        passive = other_voice(clause) if draw() < passive_rate else None
        if passive is None:
            return clause
        # To leave out an entity would leave later pronouns without what they stand for.
        drops_agent = not _entities(agent) and draw() < 0.6
        return passive._replace(agent=None) if drops_agent else passive

    def _agentless(self) -> Clause:
        """The vaccine has been tested."""
        draw, topic = self._draw, self.phrases.topic
        known = self._known(kinds_of("thing", "edible", "plant", "idea", "animal", "person"))
        patient = self.discourse.refer(known or self.add_entity(kinds_of("thing", "plant")))
        verb = topic.verbs_taking(self.discourse.noun(patient).kind).draw(draw)
        while not may_be_passive(verb):
            verb = topic.verbs_taking(self.discourse.noun(patient).kind).draw(draw)
        clause = Clause(
            verb,
            None,
            patient,
            voice="passive",
            tense=self.phrases.tense,
            aspect="simple" if verb.stative or draw() < 0.7 else "perfect",
            negated=draw() < _NEGATION_RATE,
        )
        return self._with_adverbs(clause, may_have_setting=False)

    def _infinitive(self, agent: Phrase) -> Clause:
        """What somebody wants or tries to do; nobody tries to be in a state."""
        frame: Frame = "transitive" if self._draw() < 0.75 else "intransitive"
        verbs = self.phrases.topic.verbs(frame, self.discourse.noun(agent).kind)
        verb = verbs.draw(self._draw)
        while verb.stative:
            verb = verbs.draw(self._draw)
        clause = Clause(verb, agent)
        if verb.patients:
            clause = clause._replace(patient=self.patient(verb, agent))
        return clause

    def _copular(self, subject: Phrase, kind: str, may_have_setting: bool) -> Clause:
        """Is (very) old, is an honest farmer, is in the barn."""
        draw, phrases = self._draw, self.phrases
        negative_subject = isinstance(subject, NounPhrase) and subject.determiner == "no"
        clause = Clause(
            BE,
            subject,
            tense=self.phrases.tense,
            negated=draw() < _NEGATION_RATE and not negative_subject,
            frequency=word_list("frequency").draw(draw) if draw() < 0.06 else "",
        )
        if clause.negated:
            clause = clause._replace(frequency="")
        chance = draw()
        adjective = phrases.topic.adjectives(kind).draw(draw)
        if (chance < 0.62 or not may_have_setting) and not _clashes(subject, adjective):
            degree = word_list("degree").draw(draw) if draw() < 0.25 else ""
            return clause._replace(complement=Property(adjective, degree))
        if chance < 0.8 or kind != "person" or isinstance(subject, NounPhrase):
            return clause._replace(complement=phrases.place())
        noun = phrases.noun(kinds_of("person"))
        gender = self.discourse.gender(subject)
        if noun.gender and gender and noun.gender != gender:
            return clause._replace(complement=phrases.place())
        plural = is_plural(subject)
        determiner = "" if plural else "a"
        return clause._replace(
            complement=NounPhrase(noun, plural, determiner, (phrases.adjective(noun),))
        )

    def _with_adverbs(self, clause: Clause, may_have_setting: bool) -> Clause:
        draw = self._draw
        chance = draw()
        if chance < 0.1:
            if not clause.negated and clause.aspect == "simple":
                return clause._replace(frequency=word_list("frequency").draw(draw))
        elif chance < 0.22:
            if not clause.verb.stative:
                return clause._replace(adjuncts=(self.phrases.manner(),))
        elif chance < 0.34 and may_have_setting:
            if not clause.verb.stative and "place" not in clause.verb.patients:
                return clause._replace(adjuncts=(self.phrases.place(),))
        elif chance < 0.46 and may_have_setting and clause.modal in ("", "will"):
            if clause.aspect == "perfect":
                return clause
            when = "future" if clause.modal == "will" else self.phrases.tense
            return clause._replace(adjuncts=(time_phrases(when).draw(draw),))
        return clause


def _clashes(subject: Phrase, adjective: Adjective) -> bool:
    """Whether the subject already says the adjective, or its opposite."""
    said = subject.adjectives if isinstance(subject, NounPhrase) else ()
    return any(a == adjective or lexicon().are_opposites(a.word, adjective.word) for a in said)


def _entities(phrase: Phrase | None) -> tuple[int, ...]:
    """The entities that a phrase stands for."""
    if isinstance(phrase, Coordination):
        return _entities(phrase.left) + _entities(phrase.right)
    return () if phrase is None or phrase.entity < 0 else (phrase.entity,)

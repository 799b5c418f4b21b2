"""Draws who takes part in a clause: entities of the document, or anybody who suits the verb."""

from tupe_jax.data.builtin.discourse import Discourse, Entity
from tupe_jax.data.builtin.lexicon import Verb
from tupe_jax.data.builtin.phrases import Phrases, kinds_of
from tupe_jax.data.builtin.plan import Coordination, NounPhrase, Phrase, Pronoun
from tupe_jax.data.builtin.random_stream import Draw, Urn, pick

_LARGEST_CAST = 9
_AGENTS = Urn(
    [
        ("who acted last", 42),
        ("one of the cast", 34),
        ("two of the cast", 4),
        ("any person or animal", 13),
        ("anything that can act", 5),
        ("nobody", 2),
    ]
)
_PATIENTS = Urn(
    [
        ("known", 40),
        ("new to the cast", 23),
        ("anything", 20),
        ("somebody's", 10),
        ("two things", 4),
        ("the agent itself", 3),
    ]
)


class Participants:
    """The agents, patients and recipients of one document."""

    __slots__ = ("_discourse", "_draw", "_last_agent", "_phrases")

    def __init__(self, draw: Draw, phrases: Phrases, discourse: Discourse) -> None:
        self._draw = draw
        self._phrases = phrases
        self._discourse = discourse
        self._last_agent: Entity | None = None

    def agent(self) -> Phrase:
        """Mostly an entity of the document, often the one that acted last."""
        draw, discourse = self._draw, self._discourse
        way = _AGENTS.draw(draw)
        if way == "who acted last" and self._last_agent is not None:
            return discourse.refer(self._last_agent)
        actors = kinds_of("person", "animal")
        if way in ("who acted last", "one of the cast", "two of the cast"):
            cast = [entity for entity in discourse.entities if entity.noun.kind in actors]
            self._last_agent = entity = pick(draw, cast)
            first = discourse.refer(entity)
            other = pick(draw, cast) if way == "two of the cast" else entity
            if other is entity or isinstance(first, Pronoun):
                return first
            both = Coordination(first, discourse.refer(other, may_be_pronoun=False))
            discourse.note(both)
            return both
        if way == "anything that can act":
            actors = self._phrases.topic.agent_kinds
        phrase = self._phrases.noun_phrase(actors)
        known = discourse.entity_called(phrase.noun)
        if known is not None:
            return discourse.refer(known)
        if way == "nobody" and phrase.determiner in ("the", "a"):
            phrase = phrase._replace(determiner="no")
        discourse.note(phrase)
        return phrase

    def patient(self, verb: Verb, agent: Phrase, negated: bool = False) -> Phrase:
        """Whom or what the verb is done to."""
        draw, discourse, kinds = self._draw, self._discourse, verb.patients
        way = _PATIENTS.draw(draw)
        entity: Entity | None = None
        if way == "known":
            entity = self.known(kinds, agent)
        elif way == "new to the cast" and len(discourse.entities) < _LARGEST_CAST:
            entity = self.add_entity(kinds)
        elif way == "the agent itself" and "person" in kinds:
            itself = self._reflexive(agent)
            if itself is not None:
                return itself
        if entity is not None and entity.number not in entities_of(agent):
            return discourse.refer(entity)
        phrase = self._phrases.noun_phrase(kinds)
        entity = discourse.entity_called(phrase.noun)
        if entity is not None and entity.number not in entities_of(agent):
            return discourse.refer(entity)
        if phrase.noun is discourse.noun(agent):
            phrase = phrase._replace(determiner="other" if phrase.plural else "another")
        elif negated and phrase.determiner in ("some", "", "several", "few"):
            phrase = phrase._replace(determiner="any")
        elif way == "somebody's":
            phrase = self._owned(phrase, agent)
        discourse.note(phrase)
        if way == "two things" and phrase.relative is None:
            return self._with_another(phrase, kinds)
        return phrase

    def recipient(self, verb: Verb, agent: Phrase, patient: Phrase) -> Phrase:
        """To whom it is given."""
        known = self.known(verb.recipients, agent, patient)
        if known is not None and self._draw() < 0.7:
            return self._discourse.refer(known)
        phrase = self._phrases.noun_phrase(verb.recipients, may_branch=False)
        self._discourse.note(phrase)
        return phrase

    def add_entity(self, kinds: frozenset[str]) -> Entity:
        """An entity of one of the kinds, new unless the document knows the drawn noun already."""
        noun = self._phrases.noun(kinds)
        known = self._discourse.entity_called(noun)
        if known is not None:
            return known
        entity = self._discourse.add(noun, self._phrases.draw_plural(noun))
        adjectives = self._phrases.adjectives(noun)
        entity.adjective = adjectives[0] if adjectives else None
        return entity

    def known(self, kinds: frozenset[str], *others: Phrase) -> Entity | None:
        """An entity of the kinds that is none of the others."""
        taken = {number for phrase in others for number in entities_of(phrase)}
        suited = [
            entity
            for entity in self._discourse.entities
            if entity.noun.kind in kinds and entity.number not in taken
        ]
        return pick(self._draw, suited) if suited else None

    def _reflexive(self, agent: Phrase) -> Pronoun | None:
        """Himself, if the agent is one person or group of people that the document knows."""
        numbers = entities_of(agent)
        if len(numbers) != 1 or self._discourse.noun(agent).kind != "person":
            return None
        entity = self._discourse.entities[numbers[0]]
        return Pronoun(entity.pronoun, entity.number, reflexive=True)

    def _owned(self, phrase: NounPhrase, agent: Phrase) -> NounPhrase:
        """The phrase with `her` (the agent's) or `the farmer's` instead of its determiner."""
        numbers = entities_of(agent)
        if len(numbers) == 1 and phrase.noun.kind != "place" and self._draw() < 0.7:
            entity = self._discourse.entities[numbers[0]]
            return phrase._replace(determiner="", owner=Pronoun(entity.pronoun, entity.number))
        owner = self.known(kinds_of("person"), agent)
        if owner is None or owner.plural:
            return phrase
        name = self._discourse.refer(owner, may_be_pronoun=False)
        return phrase._replace(determiner="", owner=name)

    def _with_another(self, phrase: NounPhrase, kinds: frozenset[str]) -> Phrase:
        other = self._phrases.noun_phrase(kinds, may_branch=False)
        if other.noun is phrase.noun:
            return phrase
        both = Coordination(phrase, other)
        self._discourse.note(both)
        return both


def entities_of(phrase: Phrase) -> tuple[int, ...]:
    """The entities that a phrase stands for."""
    if isinstance(phrase, Coordination):
        return entities_of(phrase.left) + entities_of(phrase.right)
    return () if phrase.entity < 0 else (phrase.entity,)

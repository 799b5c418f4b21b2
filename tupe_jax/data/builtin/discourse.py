"""What a document has talked about so far, and how it may be referred to again."""

from dataclasses import dataclass

from tupe_jax.data.builtin.lexicon import Adjective, Noun
from tupe_jax.data.builtin.plan import Coordination, Name, NounPhrase, Phrase, Pronoun
from tupe_jax.data.builtin.random_stream import Draw

_PRONOUN_RATE, _PRONOUN_RATE_IN_SENTENCE = 0.65, 0.92
_REPEATED_ADJECTIVE_RATE = 0.15
_DEFINITE_FIRST_MENTION_RATE = 0.35
_SEVERAL = -2  # a pronoun would have more than one antecedent


@dataclass(slots=True)
class Entity:
    """A person, animal or thing that the document comes back to."""

    number: int
    noun: Noun
    plural: bool
    pronoun: str  # m, f, n or p
    name: str = ""
    adjective: Adjective | None = None
    introduced: bool = False


class Discourse:
    """The entities of a document, and which of them each pronoun would mean just now."""

    __slots__ = ("_draw", "_earlier", "_now", "entities")

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.entities: list[Entity] = []
        self._earlier: dict[str, int] = {}  # pronoun -> entity, in the sentence or clause before
        self._now: dict[str, int] = {}  # the same in what is being said

    def add(self, noun: Noun, plural: bool, name: str = "", gender: str = "") -> Entity:
        """A new entity; a person whose noun has no gender gets the given one, or either."""
        if plural:
            pronoun = "p"
        elif noun.kind == "person":
            pronoun = noun.gender or gender or ("m" if self._draw() < 0.5 else "f")
        else:
            pronoun = "n"
        entity = Entity(len(self.entities), noun, plural, pronoun, name)
        self.entities.append(entity)
        return entity

    def entity_called(self, noun: Noun) -> Entity | None:
        """The entity with this noun: a document has at most one, so that `the judge` is clear."""
        for entity in self.entities:
            if entity.noun is noun:
                return entity
        return None

    @property
    def has_begun(self) -> bool:
        """Whether anything has been said that a connective could connect to."""
        return bool(self._earlier)

    def next_sentence(self) -> None:
        """Pronouns now refer to what was said last."""
        if self._now:
            self._earlier, self._now = self._now, {}

    def next_clause(self) -> None:
        """Pronouns may now also refer to the clause just said."""
        for pronoun, number in self._now.items():
            self._note(self._earlier, pronoun, number)

    def note(self, phrase: Phrase) -> None:
        """Remember a phrase that is no entity; it too could be what a pronoun stands for."""
        if isinstance(phrase, NounPhrase):
            if phrase.plural:
                pronouns = "p"
            elif phrase.noun.kind == "person":
                pronouns = phrase.noun.gender or "mf"
            else:
                pronouns = "n"
            for pronoun in pronouns:
                self._now[pronoun] = _SEVERAL
        elif isinstance(phrase, Coordination):
            self._now["p"] = _SEVERAL

    @staticmethod
    def _note(table: dict[str, int], pronoun: str, number: int) -> None:
        table[pronoun] = number if table.get(pronoun, number) == number else _SEVERAL

    def noun(self, phrase: Phrase) -> Noun:
        """The noun that the phrase stands for (its first half, if it has two)."""
        if isinstance(phrase, Coordination):
            return self.noun(phrase.left)
        if isinstance(phrase, NounPhrase):
            return phrase.noun
        return self.entities[phrase.entity].noun

    def gender(self, phrase: Phrase) -> str:
        """`m` or `f` if the phrase or the entity has a gender, else empty."""
        if isinstance(phrase, Coordination) or phrase.entity < 0:
            return ""
        pronoun = self.entities[phrase.entity].pronoun
        return pronoun if pronoun in "mf" else ""

    def can_be_pronoun(self, entity: Entity) -> bool:
        """Whether a pronoun would refer to this entity and to nothing else."""
        number, pronoun = entity.number, entity.pronoun
        return self._earlier.get(pronoun) == number and self._now.get(pronoun, number) == number

    def refer(self, entity: Entity, may_be_pronoun: bool = True) -> Phrase:
        """A phrase for the entity: a pronoun where that is clear, else a name or a noun."""
        draw, number = self._draw, entity.number
        rate = _PRONOUN_RATE_IN_SENTENCE if entity.pronoun in self._now else _PRONOUN_RATE
        pronoun = may_be_pronoun and self.can_be_pronoun(entity) and draw() < rate
        self._note(self._now, entity.pronoun, number)
        if pronoun:
            return Pronoun(entity.pronoun, number)
        if entity.name:
            entity.introduced = True
            return Name(entity.name, entity.noun.gender, number)
        noun, adjective = entity.noun, entity.adjective
        if entity.introduced:
            keeps = adjective is not None and draw() < _REPEATED_ADJECTIVE_RATE
            shown = (adjective,) if keeps and adjective is not None else ()
            return NounPhrase(noun, entity.plural, "the", shown, entity=number)
        entity.introduced = True
        if draw() < _DEFINITE_FIRST_MENTION_RATE:
            determiner = "the"
        elif entity.plural:
            determiner = "two" if draw() < 0.3 else "some"
        else:
            determiner = "a" if noun.countable else "some"
        shown = () if adjective is None else (adjective,)
        return NounPhrase(noun, entity.plural, determiner, shown, entity=number)

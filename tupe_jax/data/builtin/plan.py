"""What a sentence says, before it has words in order: phrases, clauses and their roles.

A plan is what can be put in another voice, negated, or have its roles exchanged; `realise` turns it
into words and a tree. Tuples, because a corpus makes millions of them.
"""

from typing import Literal, NamedTuple, TypeAlias

from tupe_jax.data.builtin.lexicon import Adjective, Gender, Noun, Verb

Role = Literal["agent", "patient", "recipient"]
Voice = Literal["active", "passive", "recipient_passive"]
Tense = Literal["present", "past"]
Aspect = Literal["simple", "progressive", "perfect"]

NO_ENTITY = -1


class PronounForms(NamedTuple):
    """The four forms of a pronoun."""

    subject: str
    object: str
    possessive: str
    reflexive: str


PRONOUNS: dict[str, PronounForms] = {
    "m": PronounForms("he", "him", "his", "himself"),
    "f": PronounForms("she", "her", "her", "herself"),
    "n": PronounForms("it", "it", "its", "itself"),
    "p": PronounForms("they", "them", "their", "themselves"),
}


class Pronoun(NamedTuple):
    """A pronoun: `m`, `f`, `n` or `p` (he, she, it, they), for an entity of the document."""

    which: str
    entity: int
    reflexive: bool = False


class Name(NamedTuple):
    """A person's name."""

    name: str
    gender: Gender
    entity: int


class NounPhrase(NamedTuple):
    """A noun with what belongs to it. `determiner` is empty for bare nouns, `a` stands for a/an."""

    noun: Noun
    plural: bool = False
    determiner: str = ""
    adjectives: tuple[Adjective, ...] = ()
    owner: "Phrase | None" = None  # instead of a determiner: her, the farmer's
    modifier: "PrepositionalPhrase | None" = None
    relative: "Relative | None" = None
    entity: int = NO_ENTITY


class Coordination(NamedTuple):
    """`left and right`, a plural."""

    left: "Phrase"
    right: "Phrase"


Phrase: TypeAlias = Pronoun | Name | NounPhrase | Coordination


class PrepositionalPhrase(NamedTuple):
    """A preposition and its noun phrase."""

    preposition: str
    phrase: Phrase


class Relative(NamedTuple):
    """A relative clause; the role `gap` of its clause is filled by the noun it belongs to."""

    pronoun: str  # who, that or which
    clause: "Clause"
    gap: Role


class Adverb(NamedTuple):
    """One adverb."""

    word: str


class FixedPhrase(NamedTuple):
    """A time expression: its words and tree are the same in every sentence."""

    words: tuple[str, ...]
    skeleton: "Skeleton"


Adjunct: TypeAlias = PrepositionalPhrase | Adverb | FixedPhrase


class Property(NamedTuple):
    """What `is` says about its subject: (very) old."""

    adjective: Adjective
    degree: str = ""


class Clause(NamedTuple):
    """A verb, who takes part in which role, and the grammatical choices.

    The subject of a copular clause (`verb` is BE) stands in `agent`, but has no semantic role.
    """

    verb: Verb
    agent: Phrase | None
    patient: Phrase | None = None
    recipient: Phrase | None = None
    voice: Voice = "active"
    tense: Tense = "past"
    aspect: Aspect = "simple"
    modal: str = ""
    negated: bool = False
    recipient_first: bool = False  # gave the girl a book / gave a book to the girl
    frequency: str = ""  # often, before the verb
    adjuncts: tuple[Adjunct, ...] = ()
    complement: "Clause | Property | NounPhrase | PrepositionalPhrase | None" = None


class Compound(NamedTuple):
    """Two clauses side by side; with `shared_subject` the second has no subject of its own."""

    left: Clause
    conjunction: str
    right: Clause
    shared_subject: bool = False


class Complex(NamedTuple):
    """A main clause and a subordinate one, before it or after it."""

    main: Clause
    conjunction: str
    subordinate: Clause
    subordinate_first: bool


class Existential(NamedTuple):
    """`There are` some horses in the barn."""

    phrase: NounPhrase
    place: PrepositionalPhrase
    tense: Tense


class Statement(NamedTuple):
    """A whole sentence: what it opens with, if anything, and what it says."""

    body: Clause | Compound | Complex | Existential
    opener: Adjunct | None = None


# A constituent without its words: (label, child, child ...); a child is a constituent or a tag.
Skeleton: TypeAlias = "tuple[str | Skeleton, ...]"


def is_plural(phrase: Phrase) -> bool:
    """Whether a verb with this subject is plural."""
    if isinstance(phrase, NounPhrase):
        return phrase.plural
    if isinstance(phrase, Pronoun):
        return phrase.which == "p"
    return isinstance(phrase, Coordination)


def subject_role(voice: Voice) -> Role:
    """The role that stands in front of the verb."""
    if voice == "active":
        return "agent"
    return "patient" if voice == "passive" else "recipient"

"""A word of the lexicon with its forms, and how a line of the data files is read."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from tupe_jax.data.builtin import morphology

Frame = Literal["intransitive", "transitive", "ditransitive", "dative", "reporting", "control"]
FRAMES: tuple[Frame, ...] = get_args(Frame)
Gender = Literal["m", "f", ""]
GENDERS: dict[str, Gender] = {"m": "m", "f": "f"}

# Lexemes are compared by identity: two verbs may share their spelling but not their arguments,
# and an identity hash is what makes the caches of inflected forms cheap.


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun; `plural` is empty for mass nouns, `gender` for nouns that do not tell it."""

    singular: str
    plural: str
    kind: str
    gender: Gender = ""
    preposition: str = "in"  # for places

    @property
    def countable(self) -> bool:
        return bool(self.plural)

    @property
    def shows_number(self) -> bool:
        """False for mass nouns and for `sheep`, whose number can not be read off."""
        return self.plural not in ("", self.singular)


@dataclass(frozen=True)
class Adjective:
    """An adjective; `polarity` is +1 (praise), -1 (blame) or 0."""

    word: str
    polarity: int = 0


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb, its forms, and the kinds of nouns it takes in each role."""

    base: str
    past: str
    participle: str
    frame: Frame
    agents: frozenset[str]
    patients: frozenset[str] = frozenset()
    recipients: frozenset[str] = frozenset()
    preposition: str = ""  # look *at* somebody
    object_optional: bool = False
    stative: bool = False
    polarity: int = 0

    @property
    def is_be(self) -> bool:
        """Whether this is the copula; not by identity, which would be lost in another process."""
        return self.base == "be"

    @cached_property
    def third_person(self) -> str:
        return morphology.third_person(self.base)

    @cached_property
    def gerund(self) -> str:
        return morphology.gerund(self.base)


def _polarity(text: str) -> int:
    return text.count("+") - text.count("-")


def read_noun(text: str, kind: str) -> Noun:
    """`child/children`, `hay/-`, `queen.f`, `farm@on`."""
    text, _, preposition = text.partition("@")
    text, _, gender = text.partition(".")
    singular, _, plural = text.partition("/")
    plural = {"": morphology.plural(singular), "-": ""}.get(plural, plural)
    if gender and gender not in GENDERS:
        raise ValueError(f"gender {gender!r} of {singular!r} is not m or f")
    return Noun(singular, plural, kind, GENDERS.get(gender, ""), preposition or "in")


def read_adjective(text: str) -> Adjective:
    """`old`, `kind+`, `cruel-`."""
    return Adjective(text.rstrip("+-"), _polarity(text))


def read_verb(
    text: str,
    frame: Frame,
    agents: frozenset[str],
    patients: frozenset[str] = frozenset(),
    recipients: frozenset[str] = frozenset(),
) -> Verb:
    """`feed/fed`, `grow/grew/grown`, `think/thought_about`, `eat/ate/eaten?`, `know/knew=`."""
    forms, _, preposition = text.rstrip("?=+-").partition("_")
    marks = text[len(text.rstrip("?=+-")) :]
    base, *irregular = forms.split("/")
    past = irregular[0] if irregular else morphology.past(base)
    return Verb(
        base=base,
        past=past,
        participle=irregular[-1] if irregular else past,
        frame=frame,
        agents=agents,
        patients=patients,
        recipients=recipients,
        preposition=preposition,
        object_optional="?" in marks,
        stative="=" in marks,
        polarity=_polarity(marks),
    )

"""The lexicon as seen from one topic: how likely each word is there."""

from collections.abc import Callable, Iterable
from functools import cache
from itertools import zip_longest
from typing import TypeVar

from tupe_jax.data.builtin.lexicon.entries import Adjective, Frame, Noun, Verb
from tupe_jax.data.builtin.lexicon.reader import COMMON, Lexicon, LexiconSection, lexicon
from tupe_jax.data.builtin.random_stream import Urn, zipf

# What a word of every topic, or of a foreign topic, weighs beside a word of the topic itself.
_COMMON_NOUN_SHARE, _FOREIGN_NOUN_SHARE = 0.3, 0.003
_COMMON_VERB_SHARE = 0.5
_COMMON_ADJECTIVE_SHARE = 0.6

_Word = TypeVar("_Word", Noun, Adjective)


class Topic:
    """Urns of words that prefer the topic's own ones. Made on demand and kept."""

    def __init__(self, name: str, words: Lexicon) -> None:
        self.name = name
        self._lexicon = words
        self._own, self._common = words.sections[name], words.sections[COMMON]
        self._nouns: dict[frozenset[str], Urn[Noun]] = {}
        self._adjectives: dict[str, Urn[Adjective]] = {}
        self._verbs: dict[tuple[Frame, str], Urn[Verb]] = {}
        self._verbs_taking: dict[str, Urn[Verb]] = {}

        # Kinds that can be the agent of the topic's own verbs: machines hum, flowers bloom.
        # No verb is drawn for which the topic has no fitting noun.
        self._kinds = frozenset(self._own.nouns) | frozenset(self._common.nouns)
        self.agent_kinds = frozenset[str]().union(*(verb.agents for verb in self._own.verbs))

    def nouns(self, kinds: frozenset[str]) -> Urn[Noun]:
        """Nouns of any of the kinds."""
        urn = self._nouns.get(kinds)
        if urn is None:
            weighted = [
                pair
                for name, section in self._lexicon.sections.items()
                for pair in zipf(_of_kinds(section.nouns, sorted(kinds)), self._noun_share(name))
            ]
            urn = self._nouns[kinds] = Urn(weighted)
        return urn

    def _noun_share(self, section: str) -> float:
        if section == self.name:
            return 1.0
        return _COMMON_NOUN_SHARE if section == COMMON else _FOREIGN_NOUN_SHARE

    def adjectives(self, kind: str) -> Urn[Adjective]:
        """Adjectives for nouns of the kind."""
        urn = self._adjectives.get(kind)
        if urn is None:
            above = list(self._lexicon.kinds_above(kind))
            own = _of_kinds(self._own.adjectives, above)
            common = _of_kinds(self._common.adjectives, above)
            weighted = zipf(own) + zipf(common, _COMMON_ADJECTIVE_SHARE)
            urn = self._adjectives[kind] = Urn(weighted)
        return urn

    def verbs(self, frame: Frame, agent_kind: str) -> Urn[Verb]:
        """Verbs of the frame that a noun of the kind may be the agent of."""
        urn = self._verbs.get((frame, agent_kind))
        if urn is None:
            urn = self._verbs[frame, agent_kind] = self._verb_urn(
                lambda verb: verb.frame == frame and agent_kind in verb.agents
            )
        return urn

    def verbs_taking(self, patient_kind: str) -> Urn[Verb]:
        """Transitive verbs that a noun of the kind may be the patient of."""
        urn = self._verbs_taking.get(patient_kind)
        if urn is None:
            urn = self._verbs_taking[patient_kind] = self._verb_urn(
                lambda verb: verb.frame == "transitive" and patient_kind in verb.patients
            )
        return urn

    def _verb_urn(self, suits: Callable[[Verb], bool]) -> Urn[Verb]:
        def fits(verb: Verb) -> bool:
            return suits(verb) and (not verb.patients or bool(verb.patients & self._kinds))

        own, common = _suited(self._own, fits), _suited(self._common, fits)
        return Urn(zipf(own) + zipf(common, _COMMON_VERB_SHARE))


def _of_kinds(words: dict[str, list[_Word]], kinds: Iterable[str]) -> list[_Word]:
    """The kinds' words; the kinds alternate, so that all get their share."""
    rows = zip_longest(*(words.get(kind, ()) for kind in kinds))
    return [word for row in rows for word in row if word is not None]


def _suited(section: LexiconSection, suits: Callable[[Verb], bool]) -> list[Verb]:
    """Suitable verbs; those with different arguments alternate, so that all get their share."""
    by_arguments: dict[tuple[frozenset[str], frozenset[str]], list[Verb]] = {}
    for verb in filter(suits, section.verbs):
        by_arguments.setdefault((verb.patients, verb.recipients), []).append(verb)
    rows = zip_longest(*by_arguments.values())
    return [verb for row in rows for verb in row if verb is not None]


@cache
def topics() -> tuple[Topic, ...]:
    """All topics, in the order of the data file."""
    words = lexicon()
    return tuple(Topic(name, words) for name in words.topics)

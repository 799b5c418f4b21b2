"""The lexicon in memory, read from the two data files. Their headers explain the notation."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from tupe_jax.data.builtin.lexicon.entries import (
    FRAMES,
    Adjective,
    Noun,
    Verb,
    read_adjective,
    read_noun,
    read_verb,
)

COMMON = "common"
_KINDS = "kinds"
_LISTS = frozenset(
    {
        *("manner", "frequency", "degree", "connective", "time", "names", "antonyms"),
        *("opinion", "obligatory", "objectless", "to_only", "symmetric", "one_sided"),
    }
)


@dataclass
class LexiconSection:
    """The words of one topic (or of all: the section `common`), the commonest first."""

    nouns: dict[str, list[Noun]] = field(default_factory=dict)  # by kind
    adjectives: dict[str, list[Adjective]] = field(default_factory=dict)  # by kind of noun
    verbs: list[Verb] = field(default_factory=list)


@dataclass
class Lexicon:
    """The content of the data files."""

    parent: dict[str, str] = field(default_factory=dict)  # kind -> more general kind, or ""
    own_noun: dict[str, Noun] = field(default_factory=dict)  # kind -> the noun that names it
    sections: dict[str, LexiconSection] = field(default_factory=dict)
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by the head of their line

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(name for name in self.sections if name not in (COMMON, _KINDS))

    def kinds_above(self, kind: str) -> Iterator[str]:
        """The kind and all more general ones: bird, animal."""
        while kind:
            yield kind
            kind = self.parent[kind]

    def kinds_below(self, kind: str) -> frozenset[str]:
        """The kind and all more special ones."""
        return frozenset(below for below in self.parent if kind in self.kinds_above(below))

    def hypernyms(self, noun: Noun) -> list[Noun]:
        """What the noun may also be called, from the nearest to the most general name."""
        names = [self.own_noun[k] for k in self.kinds_above(noun.kind) if k in self.own_noun]
        return [name for name in names if name is not noun]

    def are_opposites(self, one: str, other: str) -> bool:
        """Whether two adjectives exclude each other."""
        pairs = self.lists["antonyms"]
        return f"{one}={other}" in pairs or f"{other}={one}" in pairs


def read_lexicon(lines: Iterable[tuple[str, str]]) -> Lexicon:
    """Parse `(where, line)` pairs. An error names the place of the malformed line."""
    result = Lexicon()
    section = LexiconSection()
    seen: dict[str, str] = {}
    for where, line in lines:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = result.sections.setdefault(line.strip("[]"), LexiconSection())
            continue
        try:
            _read_line(line, result, section, seen)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{where}: {error} in {line!r}") from error
    return result


def _read_line(line: str, result: Lexicon, section: LexiconSection, seen: dict[str, str]) -> None:
    head, _, body = line.partition(":")
    category, _, selection = head.partition(" ")
    words = body.split()
    if category == "kind":
        _read_kind(selection, words, result, section)
    elif category in _LISTS:
        result.lists[head] = tuple(words)
    elif category == "adjective":
        for kind in _split_kinds(selection, result):
            section.adjectives.setdefault(kind, []).extend(map(read_adjective, words))
    elif category in FRAMES:
        frame = next(frame for frame in FRAMES if frame == category)
        roles = [_expand(part, result) for part in selection.split(" > ")]
        section.verbs.extend(read_verb(word, frame, *roles) for word in words)
    else:
        if category not in result.parent:
            raise ValueError(f"unknown category or kind {category!r}")
        for noun in (read_noun(word, category) for word in words):
            if seen.setdefault(noun.singular, line) != line:
                raise ValueError(f"{noun.singular!r} is already in {seen[noun.singular]!r}")
            section.nouns.setdefault(category, []).append(noun)


def _read_kind(selection: str, words: list[str], result: Lexicon, section: LexiconSection) -> None:
    kind, _, parent = selection.partition(" < ")
    result.parent[kind] = parent
    if words != ["-"]:
        (word,) = words
        result.own_noun[kind] = read_noun(word, kind)
        section.nouns.setdefault(kind, []).append(result.own_noun[kind])


def _split_kinds(selection: str, result: Lexicon) -> list[str]:
    kinds = selection.split(",")
    for kind in kinds:
        if kind not in result.parent:
            raise ValueError(f"unknown kind {kind!r}")
    return kinds


def _expand(selection: str, result: Lexicon) -> frozenset[str]:
    kinds = _split_kinds(selection, result)
    return frozenset[str]().union(*(result.kinds_below(kind) for kind in kinds))


@cache
def lexicon() -> Lexicon:
    """Read the data files, once."""
    folder = resources.files(__package__)
    return read_lexicon(
        (f"{name}:{number}", line)
        for name in ("common.txt", "topics.txt")
        for number, line in enumerate(folder.joinpath(name).read_text("utf-8").splitlines(), 1)
    )

"""The finite verb and its auxiliaries: `does not feed`, `has been fed`, `will be feeding`."""

from functools import cache
from typing import NamedTuple

from tupe_jax.data.builtin.lexicon import Verb
from tupe_jax.data.builtin.plan import Aspect, Tense

BE = Verb("be", "was", "been", "intransitive", agents=frozenset(), stative=True)
_HAVE = Verb("have", "had", "had", "transitive", agents=frozenset())
_DO = Verb("do", "did", "done", "transitive", agents=frozenset())
_IRREGULAR_THIRD = {"have": "has", "do": "does"}


class VerbPhraseLayer(NamedTuple):
    """The words that stand in one VP before the next one begins."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def finite(verb: Verb, tense: Tense, plural: bool) -> tuple[str, str]:
    """The form that agrees with the subject, and its tag."""
    if verb.is_be:
        word = {"present": ("is", "are"), "past": ("was", "were")}[tense][plural]
    elif tense == "past":
        word = verb.past
    elif plural:
        word = verb.base
    else:
        word = _IRREGULAR_THIRD.get(verb.base, verb.third_person)
    return word, "VBD" if tense == "past" else ("VBP" if plural else "VBZ")


@cache
def verb_group(
    verb: Verb,
    tense: Tense,
    aspect: Aspect,
    modal: str,
    passive: bool,
    negated: bool,
    plural: bool,
) -> tuple[VerbPhraseLayer, ...]:
    """The layers of the verb phrase from the outside in; the last one holds the main verb."""
    # Auxiliaries from the outside in, each with the form it asks of the verb after it.
    chain: list[tuple[Verb, str]] = []
    if aspect == "perfect":
        chain.append((_HAVE, "VBN"))
    if aspect == "progressive":
        chain.append((BE, "VBG"))
    if passive:
        chain.append((BE, "VBN"))
    if negated and not chain and not modal and not verb.is_be:
        chain.append((_DO, "VB"))
    layers: list[VerbPhraseLayer] = []
    form = ""
    if modal:
        layers.append(VerbPhraseLayer((modal,), ("TO" if modal == "to" else "MD",)))
        form = "VB"
    for link, next_form in [*chain, (verb, "")]:
        word, tag = _form(link, form) if form else finite(link, tense, plural)
        layers.append(VerbPhraseLayer((word,), (tag,)))
        form = next_form
    if negated:
        words, tags = layers[0]
        layers[0] = VerbPhraseLayer((*words, "not"), (*tags, "RB"))
    return tuple(layers)


def _form(verb: Verb, tag: str) -> tuple[str, str]:
    return {"VB": verb.base, "VBG": verb.gerund, "VBN": verb.participle}[tag], tag

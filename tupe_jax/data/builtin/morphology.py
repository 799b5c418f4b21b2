"""Regular English inflection; irregular forms are spelt out in the lexicon."""

import re

_SIBILANT = re.compile(r"(s|x|z|ch|sh)$")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")
_ONE_SYLLABLE_THAT_DOUBLES = re.compile(r"^(?:[^aeiou]|qu)*[aeiou][^aeiouwxy]$")
_DOUBLES_DESPITE_LENGTH = frozenset(
    {
        *("transmit", "submit", "admit", "commit", "acquit", "prefer", "begin", "forget"),
        *("cancel", "control", "travel", "unplug"),
    }
)
_AN_DESPITE_CONSONANT = ("honest", "hour", "heir", "honour")
_A_DESPITE_VOWEL = ("uni", "use", "euro", "one", "ewe")
_IRREGULAR_ING = {"be": "being", "lie": "lying", "tie": "tying", "die": "dying"}


def plural(noun: str) -> str:
    """Cat, box, fly: cats, boxes, flies."""
    return _add_s(noun)


def third_person(verb: str) -> str:
    """Feed, watch, carry: feeds, watches, carries."""
    return _add_s(verb)


def _add_s(word: str) -> str:
    if _SIBILANT.search(word):
        return word + "es"
    if _CONSONANT_Y.search(word):
        return word[:-1] + "ies"
    return word + "s"


def _doubles(verb: str) -> bool:
    return verb in _DOUBLES_DESPITE_LENGTH or bool(_ONE_SYLLABLE_THAT_DOUBLES.search(verb))


def past(verb: str) -> str:
    """Clean, bake, carry, chop: cleaned, baked, carried, chopped."""
    if verb.endswith("e"):
        return verb + "d"
    if _CONSONANT_Y.search(verb):
        return verb[:-1] + "ied"
    return verb + (verb[-1] if _doubles(verb) else "") + "ed"


def gerund(verb: str) -> str:
    """Feed, bake, chop, lie: feeding, baking, chopping, lying."""
    if verb in _IRREGULAR_ING:
        return _IRREGULAR_ING[verb]
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")):
        return verb[:-1] + "ing"
    return verb + (verb[-1] if _doubles(verb) else "") + "ing"


def article(next_word: str) -> str:
    """`a` or `an`, by the sound of the word that follows."""
    if next_word.startswith(_AN_DESPITE_CONSONANT):
        return "an"
    if next_word.startswith(_A_DESPITE_VOWEL):
        return "a"
    return "an" if next_word[0] in "aeiou" else "a"

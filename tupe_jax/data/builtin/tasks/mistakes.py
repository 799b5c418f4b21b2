"""Kinds of mistakes; each gives the words of a wrong sentence, or None if it cannot be made.

Care is taken that the result is wrong under every reading: `the fish swim` is right, and so is
`she read` for `she reads`.
"""

from collections.abc import Callable, Sequence
from functools import cache

from tupe_jax.data.builtin.lexicon import Noun, Verb, lexicon
from tupe_jax.data.builtin.phrases import Phrases, kinds_of
from tupe_jax.data.builtin.plan import PRONOUNS, Clause, NounPhrase
from tupe_jax.data.builtin.random_stream import Draw, pick
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.sentence import Sentence
from tupe_jax.data.builtin.transform import main_clause, with_main_clause

Mistake = Callable[[Phrases, Draw, Sentence], Sequence[str] | None]

_AUXILIARY_NUMBER = {"is": "are", "was": "were", "has": "have", "does": "do"}
_SINGULAR_DETERMINERS = frozenset({"a", "an", "this", "that", "every", "each", "another"})
_PLURAL_DETERMINERS = frozenset({"these", "those", "many", "several", "two", "three", "few", "all"})
_OTHER_CASE = {
    form: other
    for which in "mfp"
    for form, other in (
        (PRONOUNS[which].subject, PRONOUNS[which].object),
        (PRONOUNS[which].object, PRONOUNS[which].subject),
    )
}


@cache
def _verbs() -> tuple[Verb, ...]:
    return tuple(verb for section in lexicon().sections.values() for verb in section.verbs)


@cache
def _nouns() -> tuple[Noun, ...]:
    sections = lexicon().sections.values()
    return tuple(noun for section in sections for nouns in section.nouns.values() for noun in nouns)


@cache
def _other_number() -> dict[str, str]:
    """Finite present verbs, from one number to the other, where no reading saves the result."""
    pairs = dict(_AUXILIARY_NUMBER)
    pairs |= {other: one for one, other in _AUXILIARY_NUMBER.items()}
    for verb in _verbs():
        pairs[verb.base] = verb.third_person
        if verb.past != verb.base:
            pairs[verb.third_person] = verb.base
    return pairs


@cache
def _invariant_nouns() -> frozenset[str]:
    return frozenset(noun.singular for noun in _nouns() if noun.singular == noun.plural)


@cache
def _noun_numbers() -> dict[str, str]:
    pairs = {noun.singular: noun.plural for noun in _nouns() if noun.shows_number}
    return pairs | {other: one for one, other in pairs.items()}


@cache
def _wrong_forms() -> dict[str, dict[str, str]]:
    """By tag: a verb form that an auxiliary asks for -> one that it cannot have."""
    sections = lexicon().sections.values()
    adjectives = {
        a.word for section in sections for line in section.adjectives.values() for a in line
    }
    adjectives |= {"open", "close"}
    verbs = [verb for verb in _verbs() if verb.base not in adjectives]  # "is open" is right
    return {
        "VB": {verb.base: verb.third_person for verb in _verbs()},
        "VBG": {verb.gerund: verb.base for verb in verbs},
        "VBN": {verb.participle: verb.base for verb in verbs if verb.participle != verb.base},
    }


@cache
def _genders() -> dict[str, str]:
    """Words that show the gender of the person they refer to."""
    genders: dict[str, str] = {noun.singular: noun.gender for noun in _nouns() if noun.gender}
    genders |= dict.fromkeys(lexicon().lists["names male"], "m")
    genders |= dict.fromkeys(lexicon().lists["names female"], "f")
    return genders | {"he": "m", "she": "f"}


def agreement(phrases: Phrases, draw: Draw, sentence: Sentence) -> Sequence[str] | None:
    """The horses that she feeds *is* hungry."""
    words, tags = _lower(sentence), sentence.tags
    if _invariant_nouns() & {*words}:
        return None
    numbers = _other_number()
    finite = [
        position
        for position, (word, tag) in enumerate(zip(words, tags, strict=True))
        if (tag in ("VBZ", "VBP") and word in numbers) or word in ("was", "were")
    ]
    if not finite:
        return None
    position = pick(draw, finite)
    return _replaced(words, position, numbers[words[position]])


def determiner(phrases: Phrases, draw: Draw, sentence: Sentence) -> Sequence[str] | None:
    """These old *horse*."""
    words, tags = _lower(sentence), sentence.tags
    numbers = _noun_numbers()
    wrong: list[int] = []
    for start, word in enumerate(words):
        wanted = "NN" if word in _SINGULAR_DETERMINERS else "NNS"
        known = word in _SINGULAR_DETERMINERS or word in _PLURAL_DETERMINERS
        if not known or tags[start] not in ("DT", "JJ", "CD"):
            continue
        end = start + 1
        while tags[end] == "JJ":
            end += 1
        if tags[end] == wanted and words[end] in numbers:
            wrong.append(end)
    if not wrong:
        return None
    position = pick(draw, wrong)
    return _replaced(words, position, numbers[words[position]])


def word_order(phrases: Phrases, draw: Draw, sentence: Sentence) -> Sequence[str] | None:
    """Horse the; old the horse; the barn in; not does; feed will."""
    words, tags = _lower(sentence), sentence.tags
    moves: list[tuple[int, int]] = []  # take a word and put it after another
    for label, start, end in sentence.constituents:
        inside = tags[start:end]
        if label == "NP" and inside in (("DT", "NN"), ("DT", "JJ", "NN")):
            if words[end - 1] in _noun_numbers():
                moves.append((start, start + 1))
        elif label == "PP" and inside[0] == "IN" and len(inside) > 1:
            moves.append((start, end - 1))
    moves += [
        (position, position + 1)
        for position, following in enumerate(words[1:])
        if following == "not" or tags[position : position + 2] == ("MD", "VB")
    ]
    if not moves:
        return None
    taken, after = pick(draw, moves)
    return [*words[:taken], *words[taken + 1 : after + 1], words[taken], *words[after + 1 :]]


def verb_form(phrases: Phrases, draw: Draw, sentence: Sentence) -> Sequence[str] | None:
    """Does not *feeds*; has *give*; is *sing*."""
    words, tags = _lower(sentence), sentence.tags
    forms = _wrong_forms()
    places = [
        position
        for position, (word, tag) in enumerate(zip(words, tags, strict=True))
        if word in forms.get(tag, ())
    ]
    if not places:
        return None
    position = pick(draw, places)
    return _replaced(words, position, forms[tags[position]][words[position]])


def subcategorisation(phrases: Phrases, draw: Draw, sentence: Sentence) -> Sequence[str] | None:
    """She *repaired*; she *arrived the train*; she *explained him the plan*."""
    clause = main_clause(sentence.plan)
    if clause is None or clause.voice != "active" or clause.complement is not None:
        return None
    wrong = _wrong_objects(phrases, clause)
    if wrong is None:
        return None
    return _lower(realise(with_main_clause(sentence.plan, wrong)))


def _wrong_objects(phrases: Phrases, clause: Clause) -> Clause | None:
    lists, verb = lexicon().lists, clause.verb
    if verb.frame == "dative" and verb.base in lists["to_only"]:
        return clause._replace(recipient_first=True)
    if verb.frame == "transitive" and verb.base in lists["obligatory"] and not verb.preposition:
        return clause._replace(patient=None)
    if verb.frame == "intransitive" and verb.base in lists["objectless"]:
        noun = phrases.noun(kinds_of("thing", "person"))
        return clause._replace(patient=NounPhrase(noun, False, "the", phrases.adjectives(noun)))
    return None


def pronoun_case(phrases: Phrases, draw: Draw, sentence: Sentence) -> Sequence[str] | None:
    """*Him* feeds the horses; she sees *they*."""
    words, tags = _lower(sentence), sentence.tags
    places = [
        position
        for position, (word, tag) in enumerate(zip(words, tags, strict=True))
        if tag == "PRP" and word in _OTHER_CASE
    ]
    if not places:
        return None
    position = pick(draw, places)
    return _replaced(words, position, _OTHER_CASE[words[position]])


def reflexive(phrases: Phrases, draw: Draw, sentence: Sentence) -> Sequence[str] | None:
    """The queen praised *himself*; the farmers praised *herself*."""
    words = _lower(sentence)
    forms = {PRONOUNS[which].reflexive: which for which in "mfp"}
    for mention in sentence.mentions:
        position = mention.span[0]
        which = forms.get(words[position])
        if which is None:
            continue
        start, end = next(m.span for m in sentence.mentions if m.entity == mention.entity)
        told = which == "p" or any(_genders().get(word) for word in words[start:end])
        if told:
            others = [form for form, other in forms.items() if other != which]
            return _replaced(words, position, pick(draw, others))
    return None


def _lower(sentence: Sentence) -> list[str]:
    """The words without the capital letter of the sentence."""
    words = list(sentence.words)
    if sentence.tags[0] != "NNP":
        words[0] = words[0].lower()
    return words


def _replaced(words: Sequence[str], position: int, word: str) -> list[str]:
    return [*words[:position], word, *words[position + 1 :]]

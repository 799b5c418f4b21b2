"""NLI: does the premise entail the hypothesis, contradict it, or neither?

Each family draws the hypothesis first, without looking at the label, and then a premise that makes
the label true. So the hypothesis alone gives no information about the label, and labels are
logically correct.
"""

from collections.abc import Callable
from typing import NamedTuple

from tupe_jax.data.builtin.lexicon import Adjective, Noun, Verb, lexicon
from tupe_jax.data.builtin.phrases import Phrases, kinds_of, time_phrases
from tupe_jax.data.builtin.plan import Adjunct, Clause, NounPhrase, Property
from tupe_jax.data.builtin.random_stream import Draw, Urn, pick
from tupe_jax.data.builtin.tasks.scene import say, scene, two_way_verbs
from tupe_jax.data.builtin.verb_group import BE
from tupe_jax.data.builtin.voice import may_be_passive
from tupe_jax.data.labelled.example import Example

LABELS = ("entailment", "neutral", "contradiction")
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)
_DRAWS_PER_FAMILY = 20


class Pair(NamedTuple):
    """Premise and hypothesis."""

    premise: Clause
    hypothesis: Clause


def example(draw: Draw, label: int) -> Example | None:
    """One example with the label, or None if the draw fails."""
    found = pair(draw, label)
    return None if found is None else Example(say(found.premise), say(found.hypothesis), label)


def pair(draw: Draw, label: int) -> Pair | None:
    """The content of an example, before it has words."""
    family = _FAMILIES.draw(draw)
    for _ in range(_DRAWS_PER_FAMILY):  # or families that fail often would be rare
        found = family(draw, label)
        if found is not None:
            return found
    return None


# ---- more and less special statements


class _Detail(NamedTuple):
    """An indefinite phrase and settings that can be told more or less exactly."""

    noun: Noun
    adjectives: tuple[Adjective, ...]
    adjuncts: tuple[Adjunct, ...]


def _chain(draw: Draw, detail: _Detail) -> tuple[_Detail, _Detail, _Detail] | None:
    """Three versions, each of which follows from the previous one."""
    versions = [detail]
    for _ in range(2):
        weaker = _weaker(draw, versions[-1])
        if weaker is None:
            return None
        versions.append(weaker)
    return versions[0], versions[1], versions[2]


def _weaker(draw: Draw, detail: _Detail) -> _Detail | None:
    ways: list[_Detail] = []
    if detail.adjectives:
        ways.append(detail._replace(adjectives=()))
    if detail.adjuncts:
        ways.append(detail._replace(adjuncts=()))
    ways += [detail._replace(noun=noun) for noun in lexicon().hypernyms(detail.noun)[:1]]
    return pick(draw, ways) if ways else None


class _Truth(NamedTuple):
    """A version of a chain (0 the most special), and whether it is said or denied.

    `elsewhere` says it of somebody else or of another deed, which leaves the first one open.
    """

    version: int
    negated: bool
    elsewhere: bool = False


def _premise(draw: Draw, label: int, hypothesis_negated: bool) -> _Truth:
    """What to say so that the middle version, said or denied, has the label.

    The special version implies the middle one, which implies the general one; for denials it is
    the other way round. The other two leave the middle one open. Neutral premises come in all four
    forms, so that the premise alone does not tell them.
    """
    decisive = (_Truth(0, False), _Truth(2, True))  # these say that the middle is true, or false
    open_ones = (_Truth(2, False), _Truth(0, True))
    if label == NEUTRAL:
        if draw() < 0.5:
            return pick(draw, open_ones)
        return pick(draw, decisive)._replace(elsewhere=True)
    return decisive[hypothesis_negated == (label == ENTAILMENT)]


def _object_family(draw: Draw, label: int) -> Pair | None:
    """The farmer fed a brown horse in the barn / did not feed an animal."""
    phrases = scene(draw)
    verb = phrases.topic.verbs("transitive", "person").draw(draw)
    if verb.stative or verb.preposition or verb.patients & kinds_of("place"):
        return None
    agent = _definite(draw, phrases, phrases.noun(kinds_of("person")))
    stranger = _definite(draw, phrases, phrases.noun(kinds_of("person")))
    if stranger.noun is agent.noun:
        return None
    noun = phrases.noun(verb.patients)
    versions = _chain(draw, _detail(draw, phrases, noun))
    if versions is None:
        return None
    plural = draw() < 0.25 and all(version.noun.countable for version in versions)
    passive = may_be_passive(verb)

    def clause(truth: _Truth, in_passive: bool) -> Clause:
        version = versions[truth.version]
        determiner = "a" if version.noun.countable and not plural else "some"
        if truth.negated and determiner == "some":
            determiner = "any"
        patient = NounPhrase(version.noun, plural, determiner, version.adjectives)
        return Clause(
            verb,
            stranger if truth.elsewhere else agent,
            patient,
            tense=phrases.tense,
            aspect="simple" if phrases.tense == "past" else "progressive",
            negated=truth.negated,
            # "An animal was not fed" may mean that another one was.
            voice="passive" if in_passive and not truth.negated else "active",
            adjuncts=version.adjuncts,
        )

    negated = draw() < 0.5
    hypothesis = clause(_Truth(1, negated), passive and draw() < 0.3)
    premise = clause(_premise(draw, label, negated), passive and draw() < 0.3)
    return Pair(premise, hypothesis)


def _subject_family(draw: Draw, label: int) -> Pair | None:
    """A young farmer slept in the barn / no person slept."""
    phrases = scene(draw)
    noun = phrases.noun(kinds_of("person", "animal"))
    verbs = phrases.topic.verbs("intransitive" if draw() < 0.4 else "transitive", noun.kind)
    versions = _chain(draw, _detail(draw, phrases, noun))
    if versions is None or not verbs:
        return None
    verb, other_verb = verbs.draw(draw), verbs.draw(draw)
    if verb.base == other_verb.base:
        return None
    patient, other_patient = _object(draw, phrases, verb), _object(draw, phrases, other_verb)

    def clause(truth: _Truth) -> Clause:
        version = versions[truth.version]
        determiner = "no" if truth.negated else "a"
        agent = NounPhrase(version.noun, False, determiner, version.adjectives)
        deed = (other_verb, agent, other_patient) if truth.elsewhere else (verb, agent, patient)
        return Clause(*deed, tense=phrases.tense, adjuncts=version.adjuncts)

    negated = draw() < 0.5
    return Pair(clause(_premise(draw, label, negated)), clause(_Truth(1, negated)))


def _detail(draw: Draw, phrases: Phrases, noun: Noun) -> _Detail:
    adjectives = (phrases.adjective(noun),) if draw() < 0.7 else ()
    setting = Urn[Adjunct]([(phrases.place(), 2), (phrases.manner(), 1)]).draw(draw)
    if draw() < 0.3:
        setting = time_phrases(phrases.tense).draw(draw)
    return _Detail(noun, adjectives, (setting,) if draw() < 0.6 else ())


# ---- who did it to whom


def _role_family(draw: Draw, label: int) -> Pair | None:
    """The farmer saw the girl / the girl was (not) seen by the farmer / she saw him."""
    phrases = scene(draw)
    verb = two_way_verbs(phrases.topic, "transitive", "person").draw(draw)
    if verb.base in lexicon().lists["one_sided"]:
        return None  # whatever the label, or the verb would tell it
    one, two = phrases.noun(kinds_of("person")), phrases.noun(kinds_of("person"))
    if one is two:
        return None
    negated = draw() < 0.5
    hypothesis = Clause(
        verb,
        _definite(draw, phrases, one),
        _definite(draw, phrases, two),
        tense=phrases.tense,
        negated=negated,
        voice="active" if draw() < 0.5 else "passive",
    )
    premise = hypothesis._replace(voice="passive" if hypothesis.voice == "active" else "active")
    if label == NEUTRAL:
        premise = premise._replace(agent=hypothesis.patient, patient=hypothesis.agent)
        return Pair(premise._replace(negated=draw() < 0.5), hypothesis)
    return Pair(premise._replace(negated=negated == (label == ENTAILMENT)), hypothesis)


# ---- how many

# What a quantifier says about another one with the same noun and predicate.
_FOLLOWS = {("all", "most"), ("all", "some"), ("most", "some"), ("no", "not all")}
_EXCLUDED = {("no", "most"), ("no", "some"), ("all", "not all"), ("all", "no"), ("most", "no")}
_QUANTIFIERS = ("all", "most", "some", "no", "not all")
_HYPOTHESES = ("most", "some", "not all")  # those that each label can be said of


def quantifier_label(premise: str, hypothesis: str) -> int:
    """All farmers slept: most farmers slept?"""
    if premise == hypothesis or (premise, hypothesis) in _FOLLOWS:
        return ENTAILMENT
    if (premise, hypothesis) in _EXCLUDED or (hypothesis, premise) in _EXCLUDED:
        return CONTRADICTION
    return NEUTRAL


def _quantifier_family(draw: Draw, label: int) -> Pair | None:
    """All farmers slept / most farmers slept / not all farmers slept."""
    phrases = scene(draw)
    noun = phrases.noun(kinds_of("person", "animal"))
    verbs = phrases.topic.verbs("intransitive" if draw() < 0.5 else "transitive", noun.kind)
    if not verbs or not noun.countable:
        return None
    verb = verbs.draw(draw)
    patient = _object(draw, phrases, verb)
    adjectives = phrases.adjectives(noun)
    target = pick(draw, _HYPOTHESES)
    suited = [q for q in _QUANTIFIERS if q != target and quantifier_label(q, target) == label]
    hypothesis = Clause(
        verb, NounPhrase(noun, True, target, adjectives), patient, tense=phrases.tense
    )
    return Pair(
        hypothesis._replace(agent=NounPhrase(noun, True, pick(draw, suited), adjectives)),
        hypothesis,
    )


# ---- what somebody is like


def _property_family(draw: Draw, label: int) -> Pair | None:
    """The old horse slept / the horse was (not) old / young / brown."""
    phrases = scene(draw)
    noun = phrases.noun(kinds_of("person", "animal"))
    pairs = _opposites(phrases, noun)
    verbs = phrases.topic.verbs("transitive" if draw() < 0.6 else "intransitive", noun.kind)
    if not pairs or not verbs:
        return None
    said = pick(draw, pairs)
    negated = draw() < 0.5
    others = [pair for pair in pairs if not {*pair} & {*said}]
    if not others:
        return None
    if label == NEUTRAL:
        known = pick(draw, others)[0]
    else:
        known = said[0] if negated == (label == CONTRADICTION) else said[1]
    verb = verbs.draw(draw)
    patient = _object(draw, phrases, verb)
    premise = Clause(verb, NounPhrase(noun, False, "the", (known,)), patient, tense=phrases.tense)
    hypothesis = Clause(
        BE,
        NounPhrase(noun, False, "the"),
        tense=phrases.tense,
        negated=negated,
        complement=Property(said[0]),
    )
    return Pair(premise, hypothesis)


def _opposites(phrases: Phrases, noun: Noun) -> list[tuple[Adjective, Adjective]]:
    """Ordered pairs of opposites that the noun may be."""
    known = list(dict.fromkeys(phrases.topic.adjectives(noun.kind).items))
    return [(a, b) for a in known for b in known if lexicon().are_opposites(a.word, b.word)]


def _object(draw: Draw, phrases: Phrases, verb: Verb) -> NounPhrase | None:
    """A definite patient, if the verb takes one."""
    return _definite(draw, phrases, phrases.noun(verb.patients)) if verb.patients else None


def _definite(draw: Draw, phrases: Phrases, noun: Noun) -> NounPhrase:
    plural = draw() < 0.2 and noun.countable
    return NounPhrase(noun, plural, "the", phrases.adjectives(noun))


_FAMILIES: Urn[Callable[[Draw, int], Pair | None]] = Urn(
    [
        (_object_family, 35),
        (_subject_family, 15),
        (_role_family, 20),
        (_quantifier_family, 15),
        (_property_family, 15),
    ]
)

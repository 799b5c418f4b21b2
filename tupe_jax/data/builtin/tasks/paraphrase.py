"""Paraphrase by voice: do two sentences describe the same event?

The second sentence has the words of the first in another arrangement, whatever the label: the other
voice, the other order of objects, a setting moved to the front. Where the answer is no, two phrases
or their adjectives are also exchanged. So only the word order determines the label.
"""

from tupe_jax.data.builtin.lexicon import Noun
from tupe_jax.data.builtin.phrases import Phrases, time_phrases
from tupe_jax.data.builtin.plan import Clause, NounPhrase, Statement, Voice
from tupe_jax.data.builtin.random_stream import Draw, Urn, pick
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.tasks.scene import scene, two_way_verbs
from tupe_jax.data.labelled.example import Example

LABELS = ("different", "paraphrase")
_ACTORS: Urn[str] = Urn([("person", 5), ("beast", 1)])


def example(draw: Draw, label: int) -> Example | None:
    """One pair with the label, or None if the draw fails."""
    phrases = scene(draw)
    clause = _event(draw, phrases, _ACTORS.draw(draw))
    if clause is None:
        return None
    when = time_phrases(phrases.tense).draw(draw) if draw() < 0.5 else None
    if clause.verb.stative:
        when = None
    swaps_adjectives = draw() < 0.3
    # Both are made for either label, so that both labels tell the same kinds of events.
    other = (
        _with_adjectives_exchanged(clause) if swaps_adjectives else _with_roles_exchanged(clause)
    )
    if other is None:
        return None
    first = Statement(clause._replace(adjuncts=(when,)) if when is not None else clause)
    second = Statement(_rearranged(draw, clause if label else other), opener=when)
    return Example(realise(first).text, realise(second).text, label)


def _event(draw: Draw, phrases: Phrases, kind: str) -> Clause | None:
    """Somebody does something to somebody, or gives somebody something."""
    gives = draw() < 0.3
    verbs = two_way_verbs(phrases.topic, "ditransitive" if gives else "transitive", kind)
    if not verbs:
        return None
    verb = verbs.draw(draw)
    one, two = phrases.noun(frozenset({kind})), phrases.noun(frozenset({kind}))
    if one is two:
        return None
    # One number for both, or the verb would tell which of the two is the subject.
    plural = draw() < 0.3 and one.countable and two.countable
    negated = draw() < 0.15
    agent = _participant(draw, phrases, one, plural)
    partner = _participant(draw, phrases, two, plural)
    clause = Clause(
        verb,
        agent,
        partner,
        tense=phrases.tense,
        aspect="perfect" if draw() < 0.2 else "simple",
        negated=negated,
        voice="active" if draw() < 0.5 else "passive",
    )
    if gives:
        return _gift(draw, phrases, clause)
    return clause


def _gift(draw: Draw, phrases: Phrases, clause: Clause) -> Clause:
    noun = phrases.noun(clause.verb.patients)
    gift = NounPhrase(noun, False, "the", phrases.adjectives(noun))
    first = draw() < 0.5
    voice: Voice = clause.voice if not first or clause.voice == "active" else "recipient_passive"
    return clause._replace(
        patient=gift, recipient=clause.patient, recipient_first=first, voice=voice
    )


def _participant(draw: Draw, phrases: Phrases, noun: Noun, plural: bool) -> NounPhrase:
    # Definite: "a girl was not seen" and "did not see a girl" differ in more than voice.
    determiner = pick(draw, ("these", "those") if plural else ("this", "that"))
    determiner = "the" if draw() < 0.75 else determiner
    adjectives = (phrases.adjective(noun),) if draw() < 0.7 else ()
    phrase = NounPhrase(noun, plural, determiner, adjectives)
    return phrase._replace(modifier=phrases.modifier(noun)) if draw() < 0.15 else phrase


def _with_roles_exchanged(clause: Clause) -> Clause:
    if clause.recipient is not None:
        return clause._replace(agent=clause.recipient, recipient=clause.agent)
    return clause._replace(agent=clause.patient, patient=clause.agent)


def _with_adjectives_exchanged(clause: Clause) -> Clause | None:
    agent = clause.agent
    partner = clause.recipient or clause.patient
    if not isinstance(agent, NounPhrase) or not isinstance(partner, NounPhrase):
        return None
    if agent.adjectives == partner.adjectives or not (agent.adjectives and partner.adjectives):
        return None
    agent, partner = (
        agent._replace(adjectives=partner.adjectives),
        partner._replace(adjectives=agent.adjectives),
    )
    if clause.recipient is not None:
        return clause._replace(agent=agent, recipient=partner)
    return clause._replace(agent=agent, patient=partner)


def _rearranged(draw: Draw, clause: Clause) -> Clause:
    """The same event in other words: the other voice, or the other order of the objects."""
    if clause.recipient is None:
        return clause._replace(voice="passive" if clause.voice == "active" else "active")
    if clause.voice != "active":
        return clause._replace(voice="active", recipient_first=draw() < 0.5)
    first = not clause.recipient_first
    voices: tuple[Voice, Voice] = ("active", "recipient_passive" if first else "passive")
    return clause._replace(recipient_first=first, voice=pick(draw, voices))

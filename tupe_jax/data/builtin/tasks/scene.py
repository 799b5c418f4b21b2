"""What the four tasks share: the scene that an example is drawn from."""

from functools import cache

from tupe_jax.data.builtin.lexicon import Frame, Topic, Verb, lexicon, topics
from tupe_jax.data.builtin.phrases import Phrases
from tupe_jax.data.builtin.plan import Clause, Statement, Tense
from tupe_jax.data.builtin.random_stream import Draw, Urn, pick, zipf
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.voice import may_be_passive


def scene(draw: Draw) -> Phrases:
    """A topic and a tense to draw phrases from."""
    tense: Tense = "past" if draw() < 0.6 else "present"
    return Phrases(draw, pick(draw, topics()), tense)


@cache
def two_way_verbs(topic: Topic, frame: Frame, kind: str) -> Urn[Verb]:
    """Verbs with a passive that take nouns of the kind on either side.

    Not symmetric ones: who meets somebody is met by them, so exchanged roles would change nothing.
    """
    symmetric = lexicon().lists["symmetric"]
    suited = [
        verb
        for verb in topic.verbs(frame, kind).items
        if may_be_passive(verb)
        and kind in (verb.recipients or verb.patients)
        and verb.base not in symmetric
    ]
    return Urn(zipf(suited))


def say(clause: Clause) -> str:
    """The text of one clause as a sentence."""
    return realise(Statement(clause)).text

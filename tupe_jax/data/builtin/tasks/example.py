"""What the four tasks share: an example, and the scene it is drawn from."""

from dataclasses import dataclass

from tupe_jax.data.builtin.lexicon import topics
from tupe_jax.data.builtin.phrases import Phrases
from tupe_jax.data.builtin.plan import Clause, Statement, Tense
from tupe_jax.data.builtin.random_stream import Draw, pick
from tupe_jax.data.builtin.realise import realise


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence or a pair of sentences, and the number of its label."""

    sentence1: str
    sentence2: str | None
    label: int


def scene(draw: Draw) -> Phrases:
    """A topic and a tense to draw phrases from."""
    tense: Tense = "past" if draw() < 0.6 else "present"
    return Phrases(draw, pick(draw, topics()), tense)


def say(clause: Clause) -> str:
    """The text of one clause as a sentence."""
    return realise(Statement(clause)).text

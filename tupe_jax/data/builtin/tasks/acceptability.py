"""Acceptability: is the sentence grammatical?

First a kind of mistake is drawn and a sentence in which it can be made; only then the label decides
whether it is made. So both labels have the same kinds of sentences.
"""

from typing import NamedTuple

from tupe_jax.data.builtin.lexicon import topics
from tupe_jax.data.builtin.narrator import Narrator
from tupe_jax.data.builtin.phrases import Phrases
from tupe_jax.data.builtin.random_stream import Draw, Urn, pick
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.sentence import spell
from tupe_jax.data.builtin.tasks import mistakes
from tupe_jax.data.labelled.example import Example

LABELS = ("unacceptable", "acceptable")
_SENTENCES_TRIED = 40
_MISTAKES: Urn[mistakes.Mistake] = Urn(
    [
        (mistakes.agreement, 25),
        (mistakes.determiner, 12),
        (mistakes.word_order, 20),
        (mistakes.verb_form, 13),
        (mistakes.subcategorisation, 18),
        (mistakes.pronoun_case, 6),
        (mistakes.reflexive, 6),
    ]
)


class Contrast(NamedTuple):
    """A sentence, the same with a mistake, and the kind of the mistake."""

    right: str
    wrong: str
    mistake: str


def example(draw: Draw, label: int) -> Example | None:
    """One sentence with the label, or None if the draw fails."""
    both = contrast(draw)
    return None if both is None else Example(both.right if label else both.wrong, None, label)


def contrast(draw: Draw) -> Contrast | None:
    """A minimal pair, or None if the draw fails."""
    mistake = _MISTAKES.draw(draw)
    topic = pick(draw, topics())
    narrator = Narrator(draw, topic)
    phrases = Phrases(draw, topic, "past")
    for _ in range(_SENTENCES_TRIED):
        sentence = realise(narrator.statement())
        wrong = mistake(phrases, draw, sentence)
        if wrong is not None:
            return Contrast(sentence.text, spell(wrong), mistake.__name__)
    return None

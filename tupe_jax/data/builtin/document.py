"""Documents of the built-in corpus, by number."""

from collections.abc import Iterator
from dataclasses import dataclass

from tupe_jax.data.builtin.lexicon import topics
from tupe_jax.data.builtin.narrator import Narrator
from tupe_jax.data.builtin.random_stream import pick, stream
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.sentence import Sentence

_FEWEST_SENTENCES, _MOST_SENTENCES = 6, 20


@dataclass(frozen=True, slots=True)
class Document:
    """A short text about one topic."""

    number: int
    topic: str
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """All sentences, with spaces between them."""
        return " ".join(sentence.text for sentence in self.sentences)


def document(seed: int, number: int) -> Document:
    """Document `number`, a function of the two numbers alone."""
    draw = stream("document", seed, number)
    topic = pick(draw, topics())
    narrator = Narrator(draw, topic)
    count = _FEWEST_SENTENCES + int(draw() * (_MOST_SENTENCES + 1 - _FEWEST_SENTENCES))
    sentences = tuple(realise(narrator.statement()) for _ in range(count))
    return Document(number, topic.name, sentences)


def documents(seed: int, start: int, count: int) -> Iterator[Document]:
    """Documents `start` to `start + count - 1`."""
    for number in range(start, start + count):
        yield document(seed, number)

"""The words, as data: `topics.txt`, `common.txt`, and the code that reads them."""

from tupe_jax.data.builtin.lexicon.entries import Adjective, Frame, Gender, Noun, Verb
from tupe_jax.data.builtin.lexicon.reader import Lexicon, lexicon
from tupe_jax.data.builtin.lexicon.topics import Topic, topics

__all__ = ["Adjective", "Frame", "Gender", "Lexicon", "Noun", "Topic", "Verb", "lexicon", "topics"]

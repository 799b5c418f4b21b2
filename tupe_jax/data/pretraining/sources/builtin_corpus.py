"""The built-in corpus as a source."""

import functools
from typing import Any

from tupe_jax.data import builtin
from tupe_jax.data.pretraining.sources.base import DocumentSource
from tupe_jax.data.tf_utils import DOCUMENTS_AT_ONCE, call, strings, tf

# The size of `builtin` without a number: minutes of work, enough for tiny models.
BUILTIN_DOCUMENTS = 20_000


class Builtin(DocumentSource):
    """The first documents of the generated corpus for a seed. Needs no download."""

    def __init__(self, documents: int, seed: int):
        self._documents, self._seed = documents, seed
        sample = [_builtin_text(seed, number) for number in range(min(documents, 32))]
        super().__init__(
            spec=f"builtin:{documents}",
            text_bytes=documents * sum(map(len, sample)) // len(sample),
            most_shards=documents,
            identity=f"builtin {documents} documents, seed {seed}",
        )

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        first = self._documents * index // count
        last = self._documents * (index + 1) // count

        def generate(numbers: Any) -> Any:
            return strings([_builtin_text(self._seed, int(number)) for number in numbers])

        batches = tf.data.Dataset.range(first, last).batch(DOCUMENTS_AT_ONCE)
        return batches.map(
            lambda numbers: tf.ensure_shape(call(generate, [numbers], tf.string), [None])
        ).unbatch()


# Cached because a corpus is read three times: for the tokenizer, for training, for validation.
@functools.lru_cache(maxsize=BUILTIN_DOCUMENTS)
def _builtin_text(seed: int, number: int) -> str:
    sentences = builtin.document(seed, number).sentences
    return "\n".join(sentence.text for sentence in sentences)

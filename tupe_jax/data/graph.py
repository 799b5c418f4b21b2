"""Plain Python functions inside tf.data, and plain errors out of it."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tupe_jax.data.tensorflow_on_cpu import tf
from tupe_jax.errors import UserError


def call(function: Callable[..., Any], inputs: Sequence[Any], types: Any) -> Any:
    """Call a pure Python function on tensors; its results have the given types.

    It must be pure: "stateless" lets TensorFlow save and restore an iterator that runs it.
    """
    return tf.numpy_function(function, inputs, types, stateful=False)


def strings(values: Sequence[str]) -> np.ndarray[Any, np.dtype[np.bytes_]]:
    """Return text as an array that TensorFlow takes for a vector of strings, even if empty."""
    return np.array([value.encode() for value in values], dtype=np.object_)


def map_text(dataset: tf.data.Dataset, function: Callable[[str], str]) -> tf.data.Dataset:
    """Apply a function to every document; documents of which nothing is left are dropped."""

    def on_bytes(text: bytes) -> bytes:
        return function(text.decode()).encode()

    def on_tensor(text: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(call(on_bytes, [text], tf.string), [])

    return dataset.map(on_tensor).filter(lambda text: tf.strings.length(text) > 0)


def filter_text(dataset: tf.data.Dataset, predicate: Callable[[str], bool]) -> tf.data.Dataset:
    """Keep the documents for which the predicate holds."""

    def on_bytes(text: bytes) -> np.bool_:
        return np.bool_(predicate(text.decode()))

    return dataset.filter(lambda text: tf.ensure_shape(call(on_bytes, [text], tf.bool), []))


def elements(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Iterate over a dataset as NumPy arrays; a UserError of a Python function comes out as such.

    TensorFlow passes on only the text of an exception, wrapped in its own error class.
    """
    try:
        yield from dataset.as_numpy_iterator()
    except tf.errors.OpError as error:
        if message := re.search(r"UserError: (.+)", error.message):
            raise UserError(message[1]) from None
        raise

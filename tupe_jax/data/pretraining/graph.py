"""Plain Python functions inside tf.data, and plain errors out of it."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tupe_jax.data.tensorflow_on_cpu import tf
from tupe_jax.utils.errors import UserError

# A step in Python costs a fraction of a millisecond per call: documents are passed in batches.
DOCUMENTS_AT_ONCE = 64


def call(function: Callable[..., Any], inputs: Sequence[Any], types: Any) -> Any:
    """Call a pure Python function on tensors; its results have the given types.

    It must be pure: "stateless" lets TensorFlow save and restore an iterator that runs it.
    """
    return tf.numpy_function(function, inputs, types, stateful=False)


def strings(values: Sequence[str]) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Return text as an array that TensorFlow takes for a vector of strings, even if empty."""
    return np.array([value.encode() for value in values], dtype=np.object_)


def texts(values: Sequence[bytes]) -> list[str]:
    """Return the text of a vector of strings."""
    return [value.decode() for value in values]


def map_documents(
    dataset: tf.data.Dataset, function: Callable[[list[str]], list[str]]
) -> tf.data.Dataset:
    """Apply a function of several documents, which may drop some, to all documents in order.

    How many it gets at once is no business of the function.
    """

    def on_arrays(values: Any) -> Any:
        return strings(function(texts(values)))

    def on_tensors(values: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(call(on_arrays, [values], tf.string), [None])

    return dataset.batch(DOCUMENTS_AT_ONCE).map(on_tensors).unbatch()


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

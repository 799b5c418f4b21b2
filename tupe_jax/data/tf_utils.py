"""TensorFlow, SeqIO and TFDS for input pipelines, and helpers to run Python inside tf.data.

TensorFlow must run on the CPU, because JAX needs the memory of the GPUs, and must not log about
missing GPUs in every command and worker process. Both have to be configured before the first
import, so all modules import `tf`, `seqio` and `tfds` from here. The linter enforces this.
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tupe_jax.utils.errors import RetryError, UserError
from tupe_jax.utils.paths import Path, storage_path

_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_EVERYTHING, _FATAL_ONLY = "0", "3"
_LOG_LINE = re.compile(rb"[IWE]\d{4} |WARNING: All log messages before absl::InitializeLog")


@contextlib.contextmanager
def _without_startup_log() -> Iterator[None]:
    """Drop the lines that TensorFlow's C++ code logs to stderr, unless TF_CPP_MIN_LOG_LEVEL=0.

    The log level, which TensorFlow reads once, does not apply while its libraries are loaded, so
    these lines are filtered out of stderr. The level is restored afterwards because XLA reads it
    too, and XLA's warnings, for example about a collective that hangs, must be shown.
    """
    level = os.environ.get(_LOG_LEVEL)
    if level == _EVERYTHING or sys.__stderr__ is None:
        yield
        return
    os.environ[_LOG_LEVEL] = _FATAL_ONLY
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            captured.seek(0)
            os.write(2, b"".join(line for line in captured if not _LOG_LINE.match(line)))
            if level is None:
                del os.environ[_LOG_LEVEL]
            else:
                os.environ[_LOG_LEVEL] = level


with _without_startup_log():
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")

import seqio  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

__all__ = ["seqio", "tf", "tfds"]

# Documents per call of a Python function, since each call costs a fraction of a millisecond.
DOCUMENTS_AT_ONCE = 64


def find_builder(name: str, data_dir: Path | str | None = None) -> tfds.core.DatasetBuilder:
    """Return the builder for `dataset/config` in `data_dir` or $TFDS_DATA_DIR, without download."""
    given = os.environ.get("TFDS_DATA_DIR")
    folder = data_dir or (storage_path(given) if given else tfds.core.constants.DATA_DIR)
    try:
        return tfds.core.read_only_builder.builder_from_files(name, data_dir=folder)
    except tfds.core.DatasetNotFoundError:
        raise UserError(
            f"{name}: not found in {folder}; set TFDS_DATA_DIR to its folder, or download it with "
            f"`tfds build {name}`"
        ) from None


def call(function: Callable[..., Any], inputs: Sequence[Any], types: Any) -> Any:
    """Call a pure Python function on tensors. Its results have the given types.

    The function must be pure: TensorFlow can only save and restore stateless iterators.
    """
    return tf.numpy_function(function, inputs, types, stateful=False)


def strings(values: Sequence[str]) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Return the texts as an array that TensorFlow converts to a string vector, even if empty."""
    return np.array([value.encode() for value in values], dtype=np.object_)


def texts(values: Sequence[bytes]) -> list[str]:
    """Return the texts of a string vector."""
    return [value.decode() for value in values]


def map_documents(
    dataset: tf.data.Dataset, function: Callable[[list[str]], list[str]]
) -> tf.data.Dataset:
    """Apply a function from documents to documents, which may drop some, in order.

    The result must not depend on how many documents the function gets per call.
    """

    def on_arrays(values: Any) -> Any:
        return strings(function(texts(values)))

    def on_tensors(values: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(call(on_arrays, [values], tf.string), [None])

    return dataset.batch(DOCUMENTS_AT_ONCE).map(on_tensors).unbatch()


def elements(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Iterate over a dataset as NumPy arrays, and reraise a UserError of a Python function.

    TensorFlow wraps the text of an exception in an error class of its own.
    """
    try:
        yield from dataset.as_numpy_iterator()
    except tf.errors.OpError as error:
        if found := re.search(r"(UserError|RetryError): (.+)", error.message):
            kind = RetryError if found[1] == "RetryError" else UserError
            raise kind(found[2]) from None
        raise

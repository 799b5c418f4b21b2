"""TensorFlow, and SeqIO and TFDS that import it, for input pipelines only: on the CPU, and quiet.

TensorFlow must not claim the memory of the GPUs that JAX uses. And where it finds no GPU of its
own, it greets every command and every worker process with lines about CUDA. Both must be settled
when it is first imported, so no other module imports these three (the linter sees to that).
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_EVERYTHING, _FATAL_ONLY = "0", "3"
_LOG_LINE = re.compile(rb"[IWE]\d{4} |WARNING: All log messages before absl::InitializeLog")


@contextlib.contextmanager
def _without_greeting() -> Iterator[None]:
    """Keep the log lines of TensorFlow's C++ off stderr; TF_CPP_MIN_LOG_LEVEL=0 shows them.

    The level, which TensorFlow reads once, does not hold for lines written while its libraries are
    loaded: these are taken out of stderr itself. The level is put back because XLA reads it too,
    and what XLA has to say, of a collective that hangs for example, is wanted.
    """
    level = os.environ.get(_LOG_LEVEL)
    if level == _EVERYTHING or sys.__stderr__ is None:
        yield
        return
    os.environ[_LOG_LEVEL] = _FATAL_ONLY
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            held_back.seek(0)
            os.write(2, b"".join(line for line in held_back if not _LOG_LINE.match(line)))
            if level is None:
                del os.environ[_LOG_LEVEL]
            else:
                os.environ[_LOG_LEVEL] = level


with _without_greeting():
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")

import seqio  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

__all__ = ["seqio", "tf", "tfds"]

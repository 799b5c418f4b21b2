"""What the models of a study are judged on, as digests: runs of one table must agree on it."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.lab.nli_pairs import InferencePair

PROBES = "probes"


def digests(tasks: Mapping[str, FinetuneTask], pairs: Sequence[InferencePair]) -> dict[str, str]:
    """By task, and `probes` for the pairs that they are made of, if there are any."""
    found = {
        name: _digest(("train", task.train), *task.dev.items()) for name, task in tasks.items()
    }
    return {**found, PROBES: _digest((PROBES, pairs))} if pairs else found


def _digest(*splits: tuple[str, Iterable[Any]]) -> str:
    """Examples are frozen dataclasses of texts and numbers: what they print is all they are."""
    digest = hashlib.sha256()
    for name, examples in splits:
        digest.update(f"{name}\n".encode())
        for example in examples:
            digest.update(f"{example!r}\n".encode())
    return digest.hexdigest()[:16]

"""Dropping repeated documents and lines, in one pass and in bounded memory.

Repeats are found within one stream, that is one shard of `tupe prepare` or one process's share of a
live reader; copies in different shards both stay. What has been seen is passed in and out as an
array, so these functions are pure and a tf.data iterator can save and restore it.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.pretraining.splits import fingerprint

# Shorter lines are kept: dialogue and lists repeat them for good reasons.
SHORTEST_LINE_WORDS = 8

# The memory of one stream: 2^20 slots of 8 bytes. A fingerprint sits in the slot its own bits name
# and is forgotten only when another one needs that slot: about the last million lines or documents
# are known, in 8 MiB, however long the corpus.
MEMORY_SLOTS = 1 << 20

Memory = NDArray[np.uint64]


def empty_memory() -> Memory:
    return np.zeros(MEMORY_SLOTS, np.uint64)


def drop_repeated_documents(memory: Memory, documents: list[str]) -> tuple[Memory, list[str]]:
    """Return the memory and the documents without those that have been seen before."""
    memory = memory.copy()
    return memory, [document for document in documents if _remember(memory, document)]


def drop_repeated_lines(memory: Memory, documents: list[str]) -> tuple[Memory, list[str]]:
    """Return the memory and the documents without lines that have been seen before."""
    memory = memory.copy()
    cleaned = (
        "\n".join(
            line
            for line in document.split("\n")
            if line.count(" ") + 1 < SHORTEST_LINE_WORDS or _remember(memory, line)
        )
        for document in documents
    )
    return memory, [document for document in cleaned if document]


def _remember(memory: Memory, text: str) -> bool:
    """Put the text in the memory; return whether it is new there."""
    mark = fingerprint(text)
    slot = mark % MEMORY_SLOTS
    if memory[slot] == mark:
        return False
    memory[slot] = mark
    return True


REPEAT_DROPPERS: Mapping[str, Callable[[Memory, list[str]], tuple[Memory, list[str]]]] = {
    "drop_repeated_documents": drop_repeated_documents,
    "drop_repeated_lines": drop_repeated_lines,
}

"""Drop repeated documents and lines, in one pass and in bounded memory.

Repeats are found within one stream: one shard of `tupe prepare`, or a streaming reader. Copies of
documents in different shards are kept; `copies.py` finds those. The memory of past texts is an
array that is passed in and out, so these functions are pure and a tf.data iterator can be saved and
restored.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.pretraining.splits import fingerprint

Deduplication = Literal["none", "exact"]
"""Whether copies of documents are dropped from the whole corpus, before all cleaning."""

# Shorter lines are kept: dialogues and lists repeat them for good reasons.
SHORTEST_LINE_WORDS = 8

# The memory of one stream: 2^20 slots of 8 bytes. The bits of a fingerprint select its slot, and it
# is overwritten only when another one needs that slot. So 8 MiB hold about the last million lines
# or documents, however long the corpus.
MEMORY_SLOTS = 1 << 20

Memory = NDArray[np.uint64]


def drop_repeated_documents(memory: Memory, documents: list[str]) -> tuple[Memory, list[str]]:
    """Return the new memory, and the documents that are not repeats."""
    memory = memory.copy()
    return memory, [document for document in documents if _remember(memory, document)]


def drop_repeated_lines(memory: Memory, documents: list[str]) -> tuple[Memory, list[str]]:
    """Return the new memory, and the documents without repeated lines."""
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
    """Store the text in the memory and return whether it is new."""
    bits = fingerprint(text)
    slot = bits % MEMORY_SLOTS
    if memory[slot] == bits:
        return False
    memory[slot] = bits
    return True


REPEAT_DROPPERS: Mapping[str, Callable[[Memory, list[str]], tuple[Memory, list[str]]]] = {
    "drop_repeated_documents": drop_repeated_documents,
    "drop_repeated_lines": drop_repeated_lines,
}

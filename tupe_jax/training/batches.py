"""Which rows of a global batch a process reads, and the global array that they become.

A process needs the rows that its devices hold. That is not simply one part for each process: where
the `tensor` axis spans processes, several of them hold the same rows and must read the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from tupe_jax.data.reader import Share

Rows = NDArray[np.int32]


def share_of_process(sharding: NamedSharding, batch_size: int, process: int) -> Share:
    """The part of every batch that the process reads: all rows that its devices hold."""
    indices: Mapping[Any, Any] = sharding.devices_indices_map((batch_size, 1))
    held: dict[int, list[tuple[int, int]]] = {}
    for device, (rows, _) in indices.items():
        held.setdefault(device.process_index, []).append(rows.indices(batch_size)[:2])
    return share_of_ranges(held, batch_size, process)


def share_of_ranges(
    held: Mapping[int, Sequence[tuple[int, int]]], batch_size: int, process: int
) -> Share:
    """The smallest equal parts such that every process finds its rows in one; and which it is.

    Where the rows of a process do not lie together, the parts are larger than they need be: it then
    reads rows for nobody, but never too few.
    """

    def part(ranges: Sequence[tuple[int, int]], parts: int) -> int | None:
        size = batch_size // parts
        found = {row // size for start, stop in ranges for row in (start, stop - 1)}
        return found.pop() if len(found) == 1 else None

    shards = len({start for ranges in held.values() for start, _ in ranges})
    parts = next(
        n
        for n in range(shards, 0, -1)
        if shards % n == 0 and all(part(ranges, n) is not None for ranges in held.values())
    )
    return Share(part(held[process], parts) or 0, parts)


def global_batch(sharding: NamedSharding, rows_RxS: Rows, share: Share = Share()) -> jax.Array:  # noqa: B008
    """The array of a whole batch [B, S], of which this process has the rows of its share."""
    first = share.part * len(rows_RxS)
    shape = (share.parts * len(rows_RxS), rows_RxS.shape[1])

    def on_device(index: Any) -> Rows:
        start, stop, _ = index[0].indices(shape[0])
        return rows_RxS[start - first : stop - first, index[1]]

    return jax.make_array_from_callback(shape, sharding, on_device)

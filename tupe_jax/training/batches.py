"""Which rows of a global batch a process reads, and the global array that they become.

A process needs the rows that its devices hold. That is not simply one part for each process: where
the `tensor` axis spans processes, several of them hold the same rows and must read the same.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from tupe_jax.data.reader import Share

Rows = NDArray[np.int32]


def share_of_process(sharding: NamedSharding, batch_size: int, process: int) -> Share:
    """The smallest equal part of every batch with all rows that the process's devices hold.

    Rows of one process lie together in every mesh of `make_mesh`. Should they not, the parts are
    larger: somebody then reads rows that it does not need, and never too few.
    """
    held: dict[int, tuple[int, int]] = {}
    starts = set()
    indices: Mapping[Any, Any] = sharding.devices_indices_map((batch_size, 1))
    for device, (rows, _) in indices.items():
        start, stop, _ = rows.indices(batch_size)
        low, high = held.get(device.process_index, (start, stop))
        held[device.process_index] = (min(low, start), max(high, stop))
        starts.add(start)

    def fits(parts: int) -> bool:
        size = batch_size // parts
        return all(start // size == (stop - 1) // size for start, stop in held.values())

    shards = len(starts)
    parts = next(n for n in range(shards, 0, -1) if shards % n == 0 and fits(n))
    return Share(held[process][0] // (batch_size // parts), parts)


def global_batch(sharding: NamedSharding, rows_RxS: Rows, share: Share = Share()) -> jax.Array:  # noqa: B008
    """The array of a whole batch [B, S], of which this process has the rows of its share."""
    first = share.part * len(rows_RxS)
    shape = (share.parts * len(rows_RxS), rows_RxS.shape[1])

    def on_device(index: Any) -> Rows:
        start, stop, _ = index[0].indices(shape[0])
        return rows_RxS[start - first : stop - first, index[1]]

    return jax.make_array_from_callback(shape, sharding, on_device)

"""Which rows of a global batch a process reads, and the global array that they become.

A process needs the rows that its devices hold. They need not lie together: the hosts of a TPU slice
are small tiles of its grid, while the mesh follows its rows and rings. And they need not be its
alone: where the `tensor` axis spans processes, several hold the same rows and must read the same.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from tupe_jax.data.pretraining.readers import HostShard

Rows = NDArray[np.int32]


def share_of_process(sharding: NamedSharding, batch_size: int, process: int) -> HostShard:
    """The part of every batch that the process reads: all rows that its devices hold, no other."""
    indices: Mapping[Any, Any] = sharding.devices_indices_map((batch_size, 1))
    first_rows = {device: rows.indices(batch_size)[0] for device, (rows, _) in indices.items()}
    parts = len(set(first_rows.values()))
    held = {
        first * parts // batch_size
        for device, first in first_rows.items()
        if device.process_index == process
    }
    return HostShard(tuple(sorted(held)), parts)


def global_batch(
    sharding: NamedSharding,
    rows_RxS: Rows,
    share: HostShard = HostShard(),  # noqa: B008
) -> jax.Array:
    """The array of a whole batch [B, S], of which this process has the rows of its share."""
    shape = (len(rows_RxS) // len(share.held) * share.parts, rows_RxS.shape[1])

    def on_device(index: Any) -> Rows:
        return rows_of_device(rows_RxS, share, index[0])[:, index[1]]

    return jax.make_array_from_callback(shape, sharding, on_device)


def rows_of_device(rows_RxS: Rows, share: HostShard, of_batch: slice) -> Rows:
    """The rows of one device, given as a slice of the whole batch, among those of its process."""
    size = len(rows_RxS) // len(share.held)
    start, stop, _ = of_batch.indices(size * share.parts)
    part, offset = divmod(start, size)
    first = share.held.index(part) * size + offset
    return rows_RxS[first : first + stop - start]

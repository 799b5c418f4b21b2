"""Which rows a process reads, and the array that they become."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tupe_jax.data.reader import Share
from tupe_jax.training.batches import global_batch, share_of_process, share_of_ranges


@pytest.mark.parametrize(
    ("held", "shares"),
    [
        # one device each, all on the data axis
        ({0: [(0, 4)], 1: [(4, 8)]}, [Share(0, 2), Share(1, 2)]),
        # several devices each
        ({0: [(0, 2), (2, 4)], 1: [(4, 6), (6, 8)]}, [Share(0, 2), Share(1, 2)]),
        # the tensor axis spans pairs of processes: each pair reads the same rows
        (
            {0: [(0, 4)], 1: [(0, 4)], 2: [(4, 8)], 3: [(4, 8)]},
            [Share(0, 2), Share(0, 2), Share(1, 2), Share(1, 2)],
        ),
        # it spans all of them
        ({0: [(0, 8)], 1: [(0, 8)]}, [Share(), Share()]),
        # the rows of a process do not lie together: all are read by all, and none is missing
        ({0: [(0, 2), (4, 6)], 1: [(2, 4), (6, 8)]}, [Share(), Share()]),
        # ... or only by those among whom they lie
        (
            {0: [(0, 1), (2, 3)], 1: [(1, 2), (3, 4)], 2: [(4, 5), (5, 6)], 3: [(6, 7), (7, 8)]},
            [Share(0, 2), Share(0, 2), Share(1, 2), Share(1, 2)],
        ),
    ],
)
def test_every_process_reads_the_rows_of_its_devices(held, shares):
    for process, share in enumerate(shares):
        assert share_of_ranges(held, 8, process) == share
        first, rows = share.part * share.rows(8), share.rows(8)
        for start, stop in held[process]:
            assert first <= start < stop <= first + rows


def test_the_array_has_the_rows_in_order():
    mesh = jax.make_mesh((1, 1), ("data", "tensor"))
    sharding = NamedSharding(mesh, PartitionSpec("data", None))
    rows_BxS = np.arange(24, dtype=np.int32).reshape(8, 3)
    share = share_of_process(sharding, 8, 0)
    assert share == Share()
    np.testing.assert_array_equal(global_batch(sharding, rows_BxS, share), rows_BxS)

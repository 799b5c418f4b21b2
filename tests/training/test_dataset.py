"""Which rows a process reads, and the array that they become."""

from collections import Counter

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tupe_jax.aot.targets import parse_target
from tupe_jax.config.schema import MeshConfig
from tupe_jax.data.pretraining.readers import HostShard
from tupe_jax.distributed.mesh import batch_sharding, make_mesh
from tupe_jax.training.batches import global_batch, rows_of_device, share_of_process


@pytest.mark.parametrize(
    ("target", "axes", "copies"),
    [
        ("v5e:4x4", {"data": 16}, 1),
        ("v5e:16x16", {"data": 256}, 1),
        ("v5e:16x16", {"data": 16, "fsdp": 16}, 1),
        # chips of one host, or of several, hold the same rows
        ("v5e:16x16", {"data": 64, "tensor": 4}, 4),
        ("v5e:16x16", {"data": 16, "tensor": 16}, 16),
        ("v5e:16x16", {"tensor": 256}, 256),
    ],
)
def test_hosts_of_a_pod_read_the_rows_of_their_chips_and_no_other(target, axes, copies):
    pytest.importorskip("libtpu")
    devices = parse_target(target).devices()
    sharding = batch_sharding(make_mesh(MeshConfig(**{"data": 1} | axes), devices))
    batch_size = 2 * len(devices) // copies
    batch_BxS = np.arange(3 * batch_size, dtype=np.int32).reshape(batch_size, 3)
    on_devices = Counter()
    hosts = {device.process_index for device in devices}
    assert len(hosts) == len(devices) // 4
    for host in hosts:
        share = share_of_process(sharding, batch_size, host)
        rows = share.indices(batch_size)
        needed = set()
        for device, (of_batch, _) in sharding.devices_indices_map(batch_BxS.shape).items():
            if device.process_index == host:
                numbers = range(batch_size)[of_batch]
                np.testing.assert_array_equal(
                    rows_of_device(batch_BxS[rows], share, of_batch), batch_BxS[of_batch]
                )
                needed.update(numbers)
                on_devices.update(numbers)
        assert rows == sorted(needed)
    assert on_devices == dict.fromkeys(range(batch_size), copies)


def test_the_tests_above_have_hosts_whose_rows_do_not_lie_together():
    pytest.importorskip("libtpu")
    mesh = make_mesh(MeshConfig(data=16), parse_target("v5e:4x4").devices())
    rows = share_of_process(batch_sharding(mesh), 16, 0).indices(16)
    assert rows != list(range(rows[0], rows[0] + 4))


def test_rows_that_a_process_does_not_have_are_no_other_rows():
    with pytest.raises(ValueError, match="not in tuple"):
        rows_of_device(np.zeros((4, 3), np.int32), HostShard((0, 2), 4), slice(2, 4))


@pytest.mark.parametrize("share", [HostShard(), HostShard((0, 1, 2, 3), 4)])
def test_the_array_has_the_rows_in_order(share):
    mesh = jax.make_mesh((1, 1), ("data", "tensor"))
    sharding = NamedSharding(mesh, PartitionSpec("data", None))
    rows_BxS = np.arange(24, dtype=np.int32).reshape(8, 3)
    assert share_of_process(sharding, 8, 0) == HostShard()
    np.testing.assert_array_equal(global_batch(sharding, rows_BxS, share), rows_BxS)

"""What devices send each other, read from compiled programs whose traffic is known."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.training.runs import ROOT
from tupe_jax.aot.hlo import Collective, replica_groups
from tupe_jax.distributed.hardware import CHIPS

# On eight CPU devices as two slices of four: a mesh of 2 x 4.
PROGRAMS = """
import json
from functools import partial

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

from tupe_jax.aot.hlo import read_collectives

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("slice", "data"))
x = np.zeros((8, 1024), np.float32)  # 4 KiB on each device


def looped(x, trips):
    body = lambda i, x: jax.lax.psum(x, "data") / 2
    return jax.lax.fori_loop(0, trips, body, x)


FUNCTIONS = {
    "sum over everything": lambda x: jax.lax.psum(x, ("slice", "data")),
    "sum within slices": lambda x: jax.lax.psum(x, "data"),
    "sum between slices": lambda x: jax.lax.psum(x, "slice"),
    "gather": lambda x: jax.lax.all_gather(x, "data"),
    "scatter": lambda x: jax.lax.psum_scatter(x, "data", scatter_dimension=1, tiled=True),
    "exchange": lambda x: jax.lax.all_to_all(x, "data", 1, 1, tiled=True),
    "shift": lambda x: jax.lax.ppermute(x, "data", [(i, (i + 1) % 4) for i in range(4)]),
    "loop": partial(looped, trips=7),
    "loop in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, x: looped(x, 5), x),
    "nothing": lambda x: x + 1,
}
found = {}
for optimised in (True, False):
    jax.config.update("jax_disable_most_optimizations", not optimised)
    for name, function in FUNCTIONS.items():
        sharded = jax.shard_map(
            function, mesh=mesh, in_specs=P(("slice", "data")), out_specs=P(), check_vma=False
        )
        text = jax.jit(sharded).lower(x).compile().as_text()
        found[f"{name} {optimised}"] = [
            (c.kind, c.times, c.members, c.neighbours, c.array_bytes)
            for c in read_collectives(text, [0] * 4 + [1] * 4)
        ]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    environment = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": "8",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("optimised", [True, False])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum over everything", [["all-reduce", 1, 8, 4, 4096]]),
        ("sum within slices", [["all-reduce", 1, 4, 4, 4096]]),
        ("sum between slices", [["all-reduce", 1, 2, 1, 4096]]),
        ("gather", [["all-gather", 1, 4, 4, 4 * 4096]]),
        ("scatter", [["reduce-scatter", 1, 4, 4, 4096]]),
        ("exchange", [["all-to-all", 1, 4, 4, 4096]]),
        ("shift", [["collective-permute", 1, 2, 2, 4096]]),
        ("loop", [["all-reduce", 7, 4, 4, 4096]]),
        ("loop in a loop", [["all-reduce", 15, 4, 4, 4096]]),
        ("nothing", []),
    ],
)
def test_collectives_of_known_programs(found, name, expected, optimised):
    assert found[f"{name} {optimised}"] == expected


@pytest.mark.parametrize(
    ("notation", "groups"),
    [
        ("{{0,1},{2,3}}", [[0, 1], [2, 3]]),
        ("{}", [[0, 1, 2, 3]]),
        ("[2,2]<=[4]", [[0, 1], [2, 3]]),
        ("[2,2]<=[2,2]T(1,0)", [[0, 2], [1, 3]]),
        ("mesh['a'=2,'b'=2] {'b'}", [[0, 1], [2, 3]]),
        ("mesh['a'=2,'b'=2] {'a'}", [[0, 2], [1, 3]]),
        ("mesh['a'=2,'b'=2] {'a','b'}", [[0, 1, 2, 3]]),
        ("mesh['a'=4] {'a':(1)2}", [[0, 2], [1, 3]]),
        ("mesh['a'=4] {'a':(2)2}", [[0, 1], [2, 3]]),
    ],
)
def test_notations_of_groups(notation, groups):
    rest = f"%x), channel_id=1, replica_groups={notation}, use_global_device_ids=true"
    np.testing.assert_array_equal(replica_groups(rest, devices=4), groups)


def test_bytes_sent_are_those_of_a_ring():
    reduce = Collective("all-reduce", 1, 4, 4, 1000)
    gather = Collective("all-gather", 1, 4, 4, 1000)
    assert reduce.sent_bytes == 1500
    assert gather.sent_bytes == 750


def test_the_network_is_the_bottleneck_unless_many_share_it():
    chip = CHIPS["h100"]
    inside = Collective("all-gather", 10, 8, 8, 1 << 30)
    assert inside.seconds(chip) == pytest.approx(10 * (7 / 8 * 2**30) / chip.link_bandwidth)
    across = Collective("all-gather", 1, 2, 1, 1 << 30)
    assert across.seconds(chip) == pytest.approx((1 / 2 * 2**30) / chip.network_bandwidth)
    eight_each = Collective("all-gather", 1, 16, 8, 1 << 30)
    assert eight_each.seconds(chip) == pytest.approx(
        (15 / 16 * 2**30) / (8 * chip.network_bandwidth)
    )

"""How devices become a mesh, and what is refused."""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from tests.model.helpers import small_config
from tupe_jax.aot.sharding_report import lay_out
from tupe_jax.config.schema import Config, MeshConfig, OptimizerConfig, TrainConfig, model_config
from tupe_jax.distributed.mesh import check_batch, make_mesh, tree_shardings
from tupe_jax.distributed.sharding_rules import LOGICAL_AXES, MESH_AXES, constrain, partition_spec
from tupe_jax.training.train_state import plan_state
from tupe_jax.utils.errors import UserError


@dataclass(frozen=True)
class Chip:
    """What a mesh needs to know of a device."""

    id: int
    coords: tuple[int, int, int]
    slice_index: int
    platform: str = "tpu"
    device_kind: str = "TPU v5 lite"
    core_on_chip: int = 0
    process_index: int = 0


def chips(slices, width, height, **kind):
    """Slices of width x height, shuffled as no real ones are."""
    places = itertools.product(range(slices), range(height), range(width))
    found = [Chip(i, (x, y, 0), s, **kind) for i, (s, y, x) in enumerate(places)]
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))]


def shape_of(devices, **sizes):
    return tuple(make_mesh(MeshConfig(**sizes), devices).shape.values())


def test_sizes_are_inferred():
    assert shape_of(chips(1, 4, 4)) == (1, 16, 1, 1)
    assert shape_of(chips(1, 4, 4), fsdp=-1, data=2, tensor=2) == (1, 2, 4, 2)
    assert shape_of(chips(2, 4, 4), tensor=4) == (2, 4, 1, 4)
    assert shape_of(chips(2, 4, 4), slice=2, fsdp=8) == (2, 2, 8, 1)


def test_a_slice_stays_together():
    mesh = make_mesh(MeshConfig(fsdp=4, tensor=2), chips(2, 4, 4))
    for number, members in enumerate(mesh.devices):
        assert {chip.slice_index for chip in members.flat} == {number}


def test_devices_of_the_tensor_axis_are_neighbours():
    mesh = make_mesh(MeshConfig(tensor=2), chips(1, 4, 4))
    for one, other in mesh.devices.reshape(-1, 2):
        assert sum(abs(a - b) for a, b in zip(one.coords, other.coords, strict=True)) == 1


def test_gpus_may_ignore_their_slices():
    nodes = chips(2, 4, 2, platform="gpu", device_kind="NVIDIA H100")
    assert shape_of(nodes, fsdp=16, slice=1) == (1, 1, 16, 1)
    assert shape_of(nodes, fsdp=8) == (2, 1, 8, 1)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"slice": 3}, ["mesh.slice=3", "of the 16 devices is 2", "set mesh.slice=2"]),
        ({"slice": 1}, ["mesh.slice=1", "of the 16 devices is 2", "set mesh.slice=2"]),
        ({"slice": 0}, ["mesh.slice=0", "or -1"]),
        ({"fsdp": 3}, ["mesh.fsdp=3", "8 devices of each of 2 slices", "8 / 3 is no integer"]),
        ({"data": 2, "fsdp": 2}, ["mesh.data=2", "does not use all", "set one to -1"]),
        ({"fsdp": -1}, ["mesh.data=-1, mesh.fsdp=-1", "at most one"]),
        ({"tensor": 0}, ["mesh.tensor=0", "at least 1"]),
    ],
)
def test_sizes_that_do_not_match_the_devices(sizes, words):
    with pytest.raises(UserError) as error:
        make_mesh(MeshConfig(**sizes), chips(2, 4, 2))
    assert all(word in str(error.value) for word in words), error.value


def test_slices_of_different_sizes_are_refused():
    with pytest.raises(UserError, match="4, 3"):
        make_mesh(MeshConfig(), sorted(chips(2, 2, 2), key=lambda chip: chip.id)[:-1])


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"tensor": 8}, ["'heads' of size 12", "mesh.tensor=8", "allows mesh.tensor=1, 2, 4"]),
        ({"fsdp": 5}, ["'embed' of size 768", "mesh.fsdp=5", "1, 2, 3, 4, 6, 8"]),
        ({"data": 512}, ["train.batch_size=256", "512 devices", "mesh.data=512"]),
    ],
)
def test_a_mesh_that_does_not_divide_the_model_or_the_batch(sizes, words):
    config = Config(
        model=model_config("base", "tupe_r"),
        mesh=MeshConfig(**{"data": 1, **sizes}),
        train=TrainConfig(batch_size=256 if "data" in sizes else 40),
    )
    with pytest.raises(UserError) as error:
        lay_out(config)
    assert all(word in str(error.value) for word in words), error.value


def test_every_slice_has_its_share_of_the_batch():
    mesh = AbstractMesh((2, 2, 2, 1), MESH_AXES)
    check_batch(16, 2, mesh)
    with pytest.raises(UserError, match=r"12 .*accumulate=1.* 8 .*mesh\.slice=2"):
        check_batch(12, 1, mesh)


@pytest.mark.parametrize("name", ["adam_released", "adamw", "lamb", "muon"])
def test_optimizer_state_is_sharded_like_the_weights(name):
    config = Config(
        model=small_config("tupe_r", vocab_size=64), optimizer=OptimizerConfig(name=name)
    )
    plan = plan_state(config, AbstractMesh((1, 1, 4, 2), MESH_AXES))
    shardings = jax.tree.leaves(plan.shardings.opt_state)
    arrays = jax.tree.leaves(plan.abstract.opt_state)
    assert len(arrays) > len(jax.tree.leaves(plan.abstract.params))
    for array, sharding in zip(arrays, shardings, strict=True):
        assert array.size <= 16 or sharding.shard_shape(array.shape) != array.shape


def test_a_tree_has_a_sharding_for_every_array():
    tree = {"step": jax.ShapeDtypeStruct((), jnp.int32)}
    sharding = tree_shardings(AbstractMesh((1, 2, 2, 2), MESH_AXES), tree)["step"]
    assert sharding.is_fully_replicated


def constraints(mesh, shape, *axes):
    """The partitions that a trace under this mesh asks for."""
    with jax.sharding.use_abstract_mesh(AbstractMesh(mesh, MESH_AXES)):
        traced = jax.make_jaxpr(lambda x: constrain(x, *axes))(jnp.zeros(shape))
    return [eqn.params["sharding"].spec for eqn in traced.eqns]


def test_activations_are_constrained_on_axes_that_divide_evenly():
    hidden = ("batch", "length", None)
    assert constraints((1, 2, 2, 2), (8, 6, 5), *hidden) == [
        PartitionSpec(("data", "fsdp"), "tensor", None)
    ]
    assert constraints((2, 1, 2, 1), (8, 6, 5), *hidden) == [
        PartitionSpec(("slice", "fsdp"), None, None)
    ]
    # Neither 6 rows by 4 nor 7 tokens by 2.
    assert constraints((1, 2, 2, 2), (6, 7, 5), *hidden) == [PartitionSpec(None, None, None)]
    assert constraints((1, 1, 1, 1), (8, 6, 5), *hidden) == []


def test_without_a_mesh_nothing_is_constrained():
    traced = jax.make_jaxpr(lambda x: constrain(x, "batch", None))(jnp.zeros((8, 6)))
    assert not traced.eqns


def test_the_rules_name_mesh_axes_only():
    assert {axis for axes in LOGICAL_AXES.values() for axis in axes} == set(MESH_AXES)
    assert partition_spec(["layers", "embed", None, "heads"]) == PartitionSpec(
        None, "fsdp", None, "tensor"
    )

"""To be run with 8 CPU devices: trains on several meshes, and prints what was seen as JSON."""

import functools
import hashlib
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.model.helpers import small_config
from tupe_jax.aot.sharding_report import lay_out
from tupe_jax.config.schema import Config, MeshConfig, ObjectiveConfig, OptimizerConfig, TrainConfig
from tupe_jax.distributed.mesh import batch_sharding, make_mesh
from tupe_jax.distributed.sharding_rules import constrain
from tupe_jax.model.layers import dropout
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.train_state import plan_state, random_key
from tupe_jax.training.train_step import make_train_step

MESHES = {  # slice, data, fsdp, tensor
    "one device": (1, 1, 1, 1),
    "1x8x1": (1, 1, 8, 1),
    "2x2x2": (1, 2, 2, 2),
    "1x2x4": (1, 1, 2, 4),
    "2 slices of 1x2x2": (2, 1, 2, 2),
}
MADE_ON = ("1x8x1", "2 slices of 1x2x2")
STEPS, ROWS, LENGTH, VOCAB = 10, 16, 12, 88
MODEL = small_config(
    "tupe_r",
    vocab_size=VOCAB,
    num_layers=2,
    dropout=0.1,
    attention_dropout=0.1,
    layer_loop="scan",  # compiles sooner
)


def config_on(sizes):
    return Config(
        model=MODEL,
        objective=ObjectiveConfig(mask_rate=0.3),
        optimizer=OptimizerConfig(name="adamw"),
        train=TrainConfig(batch_size=ROWS),
        mesh=MeshConfig(*sizes),
    )


def tokens():
    rows = np.random.default_rng(0).integers(5, VOCAB, (ROWS, LENGTH), dtype=np.int32)
    rows[:, 0] = 1
    rows[::3, -2:] = 0  # some padding
    return rows


def digest(tree):
    hashed = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(tree)):
        hashed.update(np.ascontiguousarray(leaf).tobytes())
    return hashed.hexdigest()


@functools.cache
def start():
    """The state at step 0, made on one device."""
    config = config_on(MESHES["one device"])
    return jax.device_get(plan_state(config, make_mesh(config.mesh, jax.devices()[:1])).create())


def train(name):
    sizes = MESHES[name]
    config = config_on(sizes)
    mesh = make_mesh(config.mesh, jax.devices()[: np.prod(sizes)])
    schedule = optax.constant_schedule(1e-2)
    optimizer = make_optimizer(config.optimizer, schedule)
    plan = plan_state(config, mesh)
    objective = make_objective(config)
    # To make it anew on every mesh would take long to compile.
    made_here = name in MADE_ON
    if made_here:
        init = plan.create.lower().compile()
        state = init()
    else:
        state = jax.device_put(start(), plan.shardings)
    arrays = jax.tree.leaves(state)
    seen = {
        "same_start": made_here and digest(state) == digest(start()),
        "largest_in_init": largest_shape(init.as_text()) if made_here else None,
        "largest_array": max(x.size for x in arrays),
        "largest_shard": max(x.addressable_shards[0].data.size for x in arrays),
        "bytes_per_device": sum(x.addressable_shards[0].data.nbytes for x in arrays),
        "planned_bytes_per_device": lay_out(config).totals["in all"].per_device,
        **draw(mesh, objective),
    }
    rows = batch_sharding(mesh)
    with jax.set_mesh(mesh):
        step = (
            jax.jit(
                make_train_step(config, plan.graph, objective, optimizer, schedule),
                out_shardings=(plan.shardings, None),
            )
            .lower(
                plan.abstract_sharded,
                {"tokens": jax.ShapeDtypeStruct((ROWS, LENGTH), np.int32, sharding=rows)},
            )
            .compile()
        )
    history = []
    for _ in range(STEPS):
        state, metrics = step(state, {"tokens": jax.device_put(tokens(), rows)})
        history.append({name: float(metrics[name]) for name in ("loss", "grad_norm")})
    return seen | {"history": history, "gathered": gathered_shapes(step.as_text())}


def draw(mesh, objective):
    """The masked tokens and the dropped units of a step, and what it took to agree on them."""
    hidden = (ROWS, LENGTH, MODEL.hidden_size), ("batch", "length", None)
    scores = (ROWS, MODEL.num_heads, LENGTH, LENGTH), ("batch", "heads", None, None)

    def at_step(tokens_BxS, step):
        key = random_key(0, "dropout", step)
        kept = [
            constrain(dropout(constrain(jnp.ones(shape), *axes), 0.1, key), *axes)
            for shape, axes in (hidden, scores)
        ]
        batch = {"tokens": tokens_BxS}
        return objective.prepare(batch, random_key(0, "masking", step)), kept

    arguments = jax.device_put(tokens(), batch_sharding(mesh)), np.int32(3)
    with jax.set_mesh(mesh):
        compiled = jax.jit(at_step).lower(*arguments).compile()
    masked, kept = compiled(*arguments)
    return {
        "masked": digest(masked),
        "dropout": digest(kept),
        "dropout_of_device": [x.addressable_shards[0].data.shape for x in kept],
        "dropout_communicates": any(word in compiled.as_text() for word in COLLECTIVES),
    }


COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute")


def gathered_shapes(compiled):
    """The shapes that devices put together from their parts."""
    return sorted(
        {
            line.split("=")[1].split("{")[0].strip()
            for line in compiled.splitlines()
            if " all-gather(" in line
        }
    )


def largest_shape(compiled):
    """How many elements the largest array in a program of one device has."""
    shapes = re.findall(r"[a-z]+[0-9]+\[([0-9,]+)\]", compiled)
    return max(int(np.prod([int(size) for size in shape.split(",")])) for shape in shapes)


if __name__ == "__main__":
    print(json.dumps({name: train(name) for name in MESHES}))

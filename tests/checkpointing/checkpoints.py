"""States, folders and processes for the tests of checkpoints.

Runs that must die, run out of space or have several devices are processes of their own, which
import this file.
"""

import os
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from tests.model.helpers import small_config
from tupe_jax.checkpointing.manager import Checkpoints
from tupe_jax.config.schema import CheckpointConfig
from tupe_jax.model.heads import MaskedLM

CONFIG = {"model": {"num_layers": 3}, "seed": 1, "optimizer": {"warmup": "10%"}, "keep_steps": (1,)}
VOCABULARY = bytes(range(256))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    step: jax.Array
    params: Any
    opt_state: Any
    ema: Any


def model_state(ema=False, seed=0, **settings):
    """The state of a real model and a real optimizer, filled with numbers of all kinds."""

    def build():
        params = nnx.state(MaskedLM(small_config(**settings), rngs=nnx.Rngs(0)), nnx.Param)
        optimizer = optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.adamw(optax.linear_schedule(1e-3, 0.0, 10), mu_dtype=jnp.bfloat16),
        )
        return State(jnp.int32(0), params, optimizer.init(params), params if ema else None)

    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray((100 * rng.standard_normal(leaf.shape)).astype(leaf.dtype)),
        jax.eval_shape(build),
    )


def small_state(step, size=1000):
    """Every number says which step it is of."""
    return {"step": jnp.int32(step), "w": jnp.full((size,), step, jnp.float32) + jnp.arange(size)}


def abstract(tree):
    return jax.eval_shape(lambda: tree)


def assert_same_bits(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def open_at(folder, **settings):
    return Checkpoints(folder, CheckpointConfig(**{"every": 1, **settings}))


def save(checkpoints, step, state=None, **more):
    state = small_state(step) if state is None else state
    return checkpoints.save(
        step, state, data={"next_index": step * 8}, config=CONFIG, vocabulary=VOCABULARY, **more
    )


def saved(folder, steps, **settings):
    """A folder with small checkpoints."""
    checkpoints = open_at(folder, **{"keep": 10, **settings})
    for step in steps:
        save(checkpoints, step)
    checkpoints.close()
    return folder


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


PRELUDE = """
import resource, signal, sys, time
from pathlib import Path

import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

from tests.checkpointing.checkpoints import *
from tupe_jax.utils.errors import UserError
"""


@contextmanager
def python(code, *arguments, **environment):
    """A process that has imported this file; it does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def truncate(file):
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def files_of(directory):
    return sorted(str(f.relative_to(directory)) for f in directory.rglob("*") if f.is_file())


def largest(directory, item):
    files = [file for file in (directory / item).rglob("*") if file.is_file()]
    return max(files, key=lambda file: file.stat().st_size)

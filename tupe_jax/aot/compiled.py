"""A program compiled for hardware that need not be here, and what the compiler says about it."""

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from tupe_jax.aot.collectives import Collective, read_collectives
from tupe_jax.utils.errors import UserError


@dataclass(frozen=True)
class Program:
    """Something to compile, and what its arguments are."""

    lower: Callable[[], jax.stages.Lowered]
    mesh: Mesh
    arguments: Mapping[str, Any]
    """Trees of `jax.ShapeDtypeStruct`s with shardings, by what they are."""


@dataclass(frozen=True)
class Compiled:
    """What a program needs."""

    memory: Mapping[str, int]
    """HBM bytes per device by kind: the arguments', temporaries, program; they add up."""
    collectives: list[Collective] | None
    """Unknown if the compiler gave up for want of memory."""
    seconds: float
    """That the compiler took."""

    @property
    def peak_bytes(self) -> int:
        return sum(self.memory.values())


def compile_program(program: Program) -> Compiled:
    """Ask the compiler; a program that does not fit is an answer, not an error."""
    lowered = program.lower()
    arguments = {name: bytes_per_device(tree) for name, tree in program.arguments.items()}
    began = time.monotonic()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        needed = _needed_bytes(str(error))
        others = max(needed - sum(arguments.values()), 0)
        memory = {**arguments, "temporaries": others}
        return Compiled(memory, None, time.monotonic() - began)
    seconds = time.monotonic() - began
    sizes: Any = compiled.memory_analysis()
    results = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    memory = {
        **arguments,
        # Rows of some arrays are padded to the hardware's tiles.
        "padding": sizes.argument_size_in_bytes - sum(arguments.values()),
        "temporaries": sizes.temp_size_in_bytes + results,
        "program": sizes.generated_code_size_in_bytes,
    }
    domains = [domain(device) for device in program.mesh.devices.flat]
    return Compiled(memory, read_collectives(compiled.as_text() or "", domains), seconds)


def bytes_per_device(tree: Any) -> int:
    """What one device holds of arrays that are sharded."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def domain(device: Any) -> int:
    """Devices of one domain have fast links: the slice of a TPU, the host of a GPU."""
    index: int = (
        device.process_index if device.platform == "gpu" else getattr(device, "slice_index", 0)
    )
    return index


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"(\d+(?:\.\d+)?)([KMGT]?)"


def _needed_bytes(message: str) -> int:
    """The memory a program would have needed, from the compiler's complaint."""
    if "RESOURCE_EXHAUSTED" not in message:
        raise UserError(f"the compiler failed: {message.strip().splitlines()[0]}")
    for pattern in (
        rf"Used {_SIZE}i?B? of {_SIZE}i?B? hbm",  # of vmem, another batch would not help
        rf"required for .*?\({_SIZE}\) exceeds",
    ):
        if found := re.search(pattern, message):
            return int(float(found.group(1)) * _UNITS[found.group(2)])
    raise UserError(f"the compiler ran out of memory: {message.strip().splitlines()[0]}")

"""What devices send each other in one run of a compiled program, read from its text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tupe_jax.aot.hlo import Instruction, array_bytes, executed, replica_groups
from tupe_jax.distributed.hardware import Chip

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


@dataclass(frozen=True)
class Collective:
    """One collective operation of a program."""

    kind: str
    times: int
    """Runs per execution of the program: trips of the loops around it."""
    members: int
    """Devices that take part together."""
    neighbours: int
    """Those of them that share the fast links: a slice of TPUs, a host of GPUs."""
    array_bytes: int
    """On each device, of the whole array: before scattering, after gathering."""

    @property
    def sent_bytes(self) -> float:
        """By each device each time, by the ring algorithms, which send the least that is needed."""
        if self.kind == "collective-permute":
            return self.array_bytes
        rounds = 2 if self.kind == "all-reduce" else 1
        return rounds * self.array_bytes * (self.members - 1) / self.members

    def seconds(self, chip: Chip) -> float:
        """All runs of it at the links' full speed.

        Between slices or hosts each of the neighbours takes its part of the data over the network.
        """
        bandwidth = chip.link_bandwidth
        if self.neighbours < self.members:
            bandwidth = min(bandwidth, self.neighbours * chip.network_bandwidth)
        return self.times * self.sent_bytes / bandwidth


def read_collectives(text: str, domains: Sequence[int]) -> list[Collective]:
    """The collectives of an optimised program; `domains[i]` is the slice or host of device i.

    The TPU compiler may spread one collective over several fusions, so that it runs beside other
    work; all of them carry its channel number. It also writes a reduce-scatter as an all-reduce in
    a fusion of a special name, and what slices do together as a `send` to the host.
    """
    found: dict[str, Collective] = {}
    for place, (instruction, computation, times) in enumerate(executed(text)):
        kind = _kind(instruction)
        if kind is None or not times:
            continue
        if kind == "all-reduce" and computation.startswith("all-reduce-scatter"):
            kind = "reduce-scatter"
        collective = _collective(kind, instruction, times, np.asarray(domains))
        channel = instruction.attribute(r"channel_id=(\d+)") or f"none, place {place}"
        key = f"{instruction.opcode}, channel {channel}"
        known = found.get(key)
        if collective.members > 1 and (known is None or known.times < times):
            found[key] = collective
    return list(found.values())


def _kind(instruction: Instruction) -> str | None:
    kind = instruction.opcode.removesuffix("-start")
    if kind == "send":
        transfer = instruction.attribute(r'_xla_megascale_transfer_type="(\w+)"') or ""
        kind = transfer.lower().replace("_", "-")
    return kind if kind in KINDS else None


def _collective(
    kind: str, instruction: Instruction, times: int, domains: NDArray[np.int64]
) -> Collective:
    sizes = array_bytes(instruction.result)
    if instruction.opcode == "send":
        slices = len(np.unique(domains))
        whole = sizes[0] * (slices if kind == "all-gather" else 1)
        return Collective(kind, times, slices, 1, whole)
    if kind == "collective-permute":
        pairs = re.findall(r"\{(\d+),(\d+)\}", instruction.rest)
        far = any(domains[int(a)] != domains[int(b)] for a, b in pairs)
        return Collective(kind, times, 2, 1 if far else 2, max(sizes))
    group = replica_groups(instruction.rest, len(domains))[0]
    neighbours = int(np.unique(domains[group], return_counts=True)[1].max())
    if instruction.opcode == "all-gather-start":
        sizes = sizes[len(sizes) // 2 :]  # the operands come first
    whole = sum(sizes)
    if instruction.opcode.startswith("reduce-scatter"):
        whole *= len(group)  # the result is one part
    return Collective(kind, times, len(group), neighbours, whole)

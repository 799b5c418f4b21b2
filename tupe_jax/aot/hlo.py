"""Reads a compiled program in XLA's text form: its instructions, and the collectives among them.

`executed` lists the instructions with the number of times each runs. `read_collectives` derives
from them what the devices send each other.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tupe_jax.distributed.hardware import Chip

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z][a-z0-9\-]*)\((.*)$")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_GROUPS = re.compile(
    r"replica_groups=(mesh\[[^\]]*\]\s*\{[^}]*\}|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?|\{.*?\}\}|\{\})"
)
_SHAPE = re.compile(r"\b([a-z]+)(\d+)?(?:e\d+m\d+\w*)?\[([\d,]*)\]")


@dataclass(frozen=True)
class Instruction:
    """One line: `%name = result opcode(rest`."""

    result: str
    opcode: str
    rest: str

    def attribute(self, pattern: str) -> str | None:
        found = re.search(pattern, self.rest)
        return found.group(1) if found else None


def executed(text: str) -> Iterator[tuple[Instruction, str, int]]:
    """Every instruction of an optimized program, its computation, and how often it runs.

    The number of trips of a loop comes from the compiler's annotation, or from the constant in the
    loop's condition (`i < 12`); a loop without either counts once.
    """
    computations, entry = _computations(text)
    times: dict[str, int] = defaultdict(int)
    times[entry] = 1
    for name in _callers_first(computations, entry):
        for instruction in computations[name]:
            yield instruction, name, times[name]
            for called, trips in _calls(instruction, computations):
                times[called] += times[name] * trips


def array_bytes(result: str) -> list[int]:
    """The bytes of every array of a result, which may be a tuple."""
    sizes = []
    for kind, bits, dimensions in _SHAPE.findall(result):
        if kind == "token":
            continue
        count = int(np.prod([int(n) for n in dimensions.split(",") if n], dtype=np.int64))
        sizes.append(count * (1 if kind == "pred" else -(-int(bits or 8) // 8)))
    return sizes


def replica_groups(rest: str, devices: int) -> NDArray[np.int64]:
    """The devices of each group, [groups, members], from any of XLA's notations."""
    found = _GROUPS.search(rest)
    notation = found.group(1) if found else "{}"
    if notation.startswith("mesh"):
        return _mesh_groups(notation)
    if notation.startswith("["):
        return _iota_groups(notation)
    rows = [[int(n) for n in row.split(",")] for row in re.findall(r"\{([\d,]+)\}", notation)]
    return np.array(rows or [list(range(devices))])


def _iota_groups(notation: str) -> NDArray[np.int64]:
    """`[2,4]<=[4,2]T(1,0)`: numbers in a grid, transposed, cut into groups."""
    shape, sizes, *order = (_integers(part) for part in re.findall(r"[\d,]+", notation))
    numbers = np.arange(np.prod(sizes)).reshape(sizes)
    return numbers.transpose(*order).reshape(shape)


def _mesh_groups(notation: str) -> NDArray[np.int64]:
    """`mesh['a'=2,'b'=4] {'b'}`: groups along some axes, or along parts of them, `'b':(1)2`."""
    mesh, along = notation.split("]", 1)
    parts = {
        name: (int(before), int(size)) if before else None
        for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", along)
    }
    sizes: list[int] = []
    chosen: list[int] = []
    for name, size in re.findall(r"'([^']+)'=(\d+)", mesh):
        part = parts.get(name)
        if name in parts and part is None:
            part = (1, int(size))
        if part is None:
            sizes.append(int(size))
        else:
            chosen.append(len(sizes) + 1)
            sizes += [part[0], part[1], int(size) // (part[0] * part[1])]
    numbers = np.arange(np.prod(sizes)).reshape(sizes)
    others = [axis for axis in range(len(sizes)) if axis not in chosen]
    members = int(np.prod([sizes[axis] for axis in chosen], dtype=np.int64))
    return numbers.transpose(others + chosen).reshape(-1, members)


def _integers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _computations(text: str) -> tuple[Mapping[str, list[Instruction]], str]:
    computations: dict[str, list[Instruction]] = {}
    entry = name = ""
    for line in text.splitlines():
        if not line.startswith((" ", "}")) and (found := _COMPUTATION.match(line)):
            name = found.group(2)
            computations[name] = []
            entry = name if found.group(1) else entry
        elif name and (found := _INSTRUCTION.match(line)):
            computations[name].append(Instruction(*found.groups()))
    return computations, entry


def _calls(
    instruction: Instruction, computations: Mapping[str, list[Instruction]]
) -> Iterator[tuple[str, int]]:
    if instruction.opcode in ("async-update", "async-done"):
        return  # they repeat the computation of async-start
    called = dict(_CALLED.findall(instruction.rest))
    trips = _trips(instruction, computations) if instruction.opcode == "while" else 1
    for name in called.values():
        if name in computations:
            yield name, trips
    for name in re.findall(r"[\w.\-]+", instruction.attribute(_BRANCHES.pattern) or ""):
        yield name, 1


def _trips(loop: Instruction, computations: Mapping[str, list[Instruction]]) -> int:
    if noted := _TRIPS.search(loop.rest):
        return int(noted.group(1))
    condition = computations[loop.attribute(r"condition=%?([\w.\-]+)") or ""]
    if not any("direction=LT" in instruction.rest for instruction in condition):
        return 1
    bounds = [int(i.rest.split(")")[0]) for i in condition if i.opcode == "constant"]
    return bounds[0] if len(bounds) == 1 else 1


def _callers_first(computations: Mapping[str, list[Instruction]], entry: str) -> list[str]:
    """The computations, each after all its callers."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for instruction in computations[name]:
            for called, _ in _calls(instruction, computations):
                visit(called)
        order.append(name)

    visit(entry)
    return order[::-1]


# ------------------------------------------------------------------------------------- collectives


@dataclass(frozen=True)
class Collective:
    """One collective operation of a program."""

    kind: str
    times: int
    """Executions per run of the program: the trips of the loops around it."""
    members: int
    """Devices of a group."""
    neighbours: int
    """Members that share the fast links: a TPU slice, a GPU host."""
    array_bytes: int
    """Size of the whole array: before scattering, after gathering."""

    @property
    def sent_bytes(self) -> float:
        """Per device and execution, with ring algorithms, which send the minimum."""
        if self.kind == "collective-permute":
            return self.array_bytes
        rounds = 2 if self.kind == "all-reduce" else 1
        return rounds * self.array_bytes * (self.members - 1) / self.members

    def seconds(self, chip: Chip) -> float:
        """All executions at full bandwidth.

        Between slices or hosts, each neighbour sends its part of the data over the network.
        """
        bandwidth = chip.link_bandwidth
        if self.neighbours < self.members:
            bandwidth = min(bandwidth, self.neighbours * chip.network_bandwidth)
        return self.times * self.sent_bytes / bandwidth


def read_collectives(text: str, domains: Sequence[int]) -> list[Collective]:
    """The collectives of an optimized program; `domains[i]` is the slice or host of device i.

    The TPU compiler may split one collective into several fusions to overlap it with other work;
    all of them have its channel number. It also writes a reduce-scatter as an all-reduce in a
    fusion with a special name, and a collective between slices as a `send` to the host.
    """
    found: dict[str, Collective] = {}
    for i, (instruction, computation, times) in enumerate(executed(text)):
        kind = _kind(instruction)
        if kind is None or not times:
            continue
        if kind == "all-reduce" and computation.startswith("all-reduce-scatter"):
            kind = "reduce-scatter"
        collective = _collective(kind, instruction, times, np.asarray(domains))
        channel = instruction.attribute(r"channel_id=(\d+)") or f"none, instruction {i}"
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

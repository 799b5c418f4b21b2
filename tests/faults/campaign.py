"""A campaign of faults: runs are harmed, restarted until they finish, and compared with calm ones.

Several faults hit one run, one per start. A fault passes if all processes end in time with a
documented exit code; a run passes if every metric, every array and the data position at its end are
those of a run that was left alone, bit for bit.
"""

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.faults.kinds import FINISHED, KINDS, STALL_SECONDS, Fault
from tests.faults.runs import Campground, Cell, Start, checkpoints_in, differences, outcome
from tupe_jax.utils.paths import Path

FAULTS_PER_RUN = 4
STARTS_TO_FINISH = 3
# The machine may be busy: a start takes seconds even if nothing happens.
PATIENCE_SECONDS = STALL_SECONDS + 120.0

CELLS = tuple(
    Cell(reader, processes, storage)
    for storage in ("local", "gs")
    for reader in ("prepared", "live")
    for processes in (1, 2, 4)
    if not (storage == "gs" and processes == 4)
)


@dataclass(frozen=True)
class Result:
    """What became of one fault, or, with the name `comparison`, of a whole run."""

    cell: str
    run: str
    fault: str
    phase: str
    codes: tuple[int | None, ...]
    seconds: float
    """From the fault to the end of the last process."""
    problems: tuple[str, ...]


def campaign(
    ground: Campground, *, faults: int, seed: int, cells: Sequence[Cell] = CELLS
) -> Iterator[Result]:
    """Harm runs until so many faults have been injected."""
    randomly = random.Random(seed)
    used: Counter[str] = Counter()
    calm = {}
    for number, cell in enumerate(itertools.cycle(cells)):
        if used.total() >= faults:
            return
        if cell not in calm:
            calm[cell] = _calm(ground, cell)
        run = f"{number:03d}"
        for result in _harmed_run(ground, cell, run, calm[cell], randomly, used):
            used[result.fault] += result.fault in KINDS
            yield result


@dataclass
class _Calm:
    """A run that was left alone."""

    numbers: dict[str, object]
    seconds: float
    """How long a run takes. The first one compiles; later ones find its programs in a cache."""


def _calm(ground: Campground, cell: Cell) -> _Calm:
    workdir = ground.workdir(cell, f"calm-{str(cell).replace(', ', '-').replace(' x ', '-')}")
    began = time.monotonic()
    start = ground.start(cell, workdir)
    if not start.wait(600) or set(start.codes()) != {FINISHED}:
        start.kill()
        raise RuntimeError(f"{cell}: a run without faults fails:\n{start.tail()}")
    seconds = time.monotonic() - began
    return _Calm(outcome(workdir), seconds)


def _harmed_run(
    ground: Campground,
    cell: Cell,
    run: str,
    calm: _Calm,
    randomly: random.Random,
    used: Counter[str],
) -> Iterator[Result]:
    workdir = ground.workdir(cell, run)
    finished = False
    for _ in range(FAULTS_PER_RUN):
        fault = _choose(cell, workdir, used, randomly)
        if fault.damage:
            fault.damage(checkpoints_in(workdir)[-1], randomly)
        start = ground.start(cell, workdir)
        began = time.monotonic()
        result = _harm(start, fault, cell, run, calm.seconds, randomly)
        finished = set(start.codes()) == {FINISHED}
        if result is not None:
            yield result
        elif finished:
            calm.seconds = min(calm.seconds, time.monotonic() - began)
        else:
            problem = f"ended before the fault: {start.codes()}: {start.tail()}"
            yield Result(str(cell), run, "none", "", tuple(start.codes()), 0.0, (problem,))
        if finished:
            break
    problems = []
    for _ in range(0 if finished else STARTS_TO_FINISH):
        start = ground.start(cell, workdir)
        if not start.wait(calm.seconds + PATIENCE_SECONDS):
            problems.append(f"does not end after a restart: {start.tail()}")
            start.kill()
        elif set(start.codes()) == {FINISHED}:
            finished = True
            break
        else:
            problems.append(f"exit codes {start.codes()} after a restart: {start.tail()}")
    if finished:
        problems += differences(calm.numbers, outcome(workdir))
    yield Result(str(cell), run, "comparison", "", (), 0.0, tuple(problems))


def _choose(cell: Cell, workdir: Path, used: Counter[str], randomly: random.Random) -> Fault:
    """A kind of fault that was used least so far."""
    possible = [fault for fault in KINDS.values() if fault.applies(cell, workdir)]
    least = min(used[fault.name] for fault in possible)
    return randomly.choice([fault for fault in possible if used[fault.name] == least])


def _harm(
    start: Start, fault: Fault, cell: Cell, run: str, calm_seconds: float, randomly: random.Random
) -> Result | None:
    """Inject a fault at a random moment; None if the run ended before."""
    phase = "before" if fault.inject is None else randomly.choice(fault.phases)
    # About three quarters of a small run are its start.
    share = {"before": (0.0, 0.0), "start": (0.0, 0.75), "training": (0.6, 1.0)}[phase]
    time.sleep(randomly.uniform(*share) * calm_seconds)
    if not start.running():
        return None
    began = time.monotonic()
    if fault.inject:
        fault.inject(start, randomly)
    frozen = start.harmed if fault.freezes else None
    in_time = start.wait(calm_seconds + PATIENCE_SECONDS, but=frozen)
    seconds = time.monotonic() - began
    problems = [] if in_time else [f"still running after {seconds:.0f} s: {start.tail()}"]
    start.kill()
    codes = tuple(start.codes())
    problems += [
        f"process {index} exits with {code}: {start.tail()}"
        for index, code in enumerate(codes)
        if code not in fault.codes(victim=index == start.harmed)
    ]
    return Result(str(cell), run, fault.name, phase, codes, seconds, tuple(problems))

"""A campaign of faults: runs are harmed, restarted until they finish, and compared with calm ones.

Several faults hit one run. A start that should survive a fault gets further ones. A fault passes if
all processes end in time with a documented exit code. A run passes if every metric, every array and
the data position at its end are those of a run that was left alone, bit for bit.
"""

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.faults.kinds import FINISHED, KINDS, OUTAGE_SECONDS, Fault
from tests.faults.runs import (
    LONGEST_LIMIT_SECONDS,
    STEPS,
    Campground,
    Cell,
    Start,
    checkpoints_in,
    differences,
    outcome,
)
from tupe_jax.utils.paths import Path

FAULTS_PER_RUN = 6
STARTS_TO_FINISH = 3
COMPARISON = "comparison"
# The machine may be busy: a start takes seconds even if nothing happens.
PATIENCE_SECONDS = LONGEST_LIMIT_SECONDS + max(OUTAGE_SECONDS) + 30.0

CELLS = tuple(
    Cell(reader, processes, storage)
    for processes in (1, 2, 4, 3)
    for storage in ("local", "gs")
    for reader in ("prepared", "live")
    if not (storage == "gs" and processes > 2)
)


@dataclass(frozen=True)
class Result:
    """What became of one fault, or, with the name `COMPARISON`, of a whole run."""

    cell: str
    run: int
    fault: str
    phase: str
    codes: tuple[int | None, ...]
    seconds: float
    """From the fault to the end of the last process."""
    problems: tuple[str, ...]


def campaign(
    ground: Campground,
    *,
    faults: int,
    seed: int,
    cells: Sequence[Cell] = CELLS,
    kinds: Collection[Fault] = tuple(KINDS.values()),
    done: Sequence[Result] = (),
) -> Iterator[list[Result]]:
    """Harm runs until so many faults have been injected, and yield the results of each run."""
    used = Counter(result.fault for result in done if result.fault in KINDS)
    first = 1 + max((result.run for result in done), default=-1)
    for run in itertools.count(first):
        if used.total() >= faults:
            return
        cell = cells[run % len(cells)]
        calm = _calm(ground, cell)
        choice = _Choice(cell, kinds, used, random.Random(f"{seed} {run}"))
        results = list(_harmed_run(ground, run, calm, choice))
        if not any(result.problems for result in results):
            ground.remove(cell, _name(run))
        yield results


@dataclass
class _Calm:
    """A run that was left alone, on a local disk: where the files are must not matter."""

    numbers: Mapping[str, object]
    start_seconds: float
    """From its start to the first step that is logged."""
    seconds: float
    """From its start to its end."""


def _calm(ground: Campground, cell: Cell) -> _Calm:
    cell = Cell(cell.reader, cell.processes, "local")
    file = ground.folder / f"calm-{cell.reader}-{cell.processes}.json"
    if not file.exists():
        for attempt in ("a", "b"):  # the first compiles, the second finds its programs in a cache
            name = f"calm-{cell.reader}-{cell.processes}{attempt}"
            ground.remove(cell, name)  # of a campaign that was interrupted
            workdir = ground.workdir(cell, name)
            began = time.monotonic()
            start = ground.start(cell, workdir)
            start.wait_for_step(0.0, STEPS, 600)
            start_seconds = time.monotonic() - began
            if not start.wait(600) or set(start.codes()) != {FINISHED}:
                start.kill()
                raise RuntimeError(f"{cell}: a run without faults fails:\n{start.tail()}")
            seconds = time.monotonic() - began
        calm = _Calm(outcome(workdir), start_seconds, seconds)
        file.write_text(json.dumps(asdict(calm)))
    return _Calm(**json.loads(file.read_text()))


@dataclass(frozen=True)
class _Choice:
    """Chooses the faults of a run."""

    cell: Cell
    kinds: Collection[Fault]
    used: Counter[str]
    """How often each kind was injected so far, in all runs."""
    randomly: random.Random

    def next(self, workdir: Path | None) -> Fault:
        """A kind that was used least; without damage if no work directory is given."""
        possible = [fault for fault in self.kinds if fault.applies(self.cell, workdir)]
        least = min(self.used[fault.name] for fault in possible)
        return self.randomly.choice([one for one in possible if self.used[one.name] == least])


def _name(run: int) -> str:
    return f"{run:03d}"


def _harmed_run(ground: Campground, run: int, calm: _Calm, choice: _Choice) -> Iterator[Result]:
    cell = choice.cell
    ground.remove(cell, _name(run))  # of a campaign that was interrupted
    workdir = ground.workdir(cell, _name(run))
    finished = False
    injected = 0
    while injected < FAULTS_PER_RUN and not finished:
        fault = choice.next(workdir)
        if fault.damage:
            fault.damage(checkpoints_in(workdir)[-1], choice.randomly)
        start = ground.start(cell, workdir)
        results = _harm(start, fault, run, calm, choice)
        finished = set(start.codes()) == {FINISHED}
        injected += len(results)
        yield from results
        if not results and not finished:
            problem = f"ended before the fault: {start.codes()}: {start.tail()}"
            yield Result(str(cell), run, "none", "", tuple(start.codes()), 0.0, (problem,))
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
    yield Result(str(cell), run, COMPARISON, "", (), 0.0, tuple(problems))


def _harm(start: Start, fault: Fault, run: int, calm: _Calm, choice: _Choice) -> list[Result]:
    """Inject faults at random moments until one should end the run; none if it ended before."""
    randomly = choice.randomly
    patience = calm.seconds + PATIENCE_SECONDS
    injected: list[tuple[Fault, str, float]] = []
    while True:
        phase = "before" if fault.inject is None else randomly.choice(fault.phases)
        if phase == "start":
            start.wait_for_step(0.0, STEPS, randomly.uniform(0.0, 1.0) * calm.start_seconds)
        elif phase == "training":
            start.wait_for_step(randomly.uniform(0.0, 1.0), STEPS, patience)
            time.sleep(randomly.uniform(0.0, 0.1))
        if not start.running():
            break
        injected.append((fault, phase, time.monotonic()))
        choice.used[fault.name] += 1
        if fault.inject:
            fault.inject(start, randomly)
        if not fault.survived:
            break
        fault = choice.next(None)
    in_time = start.wait(patience, but=start.frozen)
    ended = time.monotonic()
    problems = [] if in_time else [f"still running after {patience:.0f} s: {start.tail()}"]
    start.kill()
    codes = tuple(start.codes())
    problems += [
        f"process {index} exits with {code}: {start.tail()}"
        for index, code in enumerate(codes)
        if not any(
            code in fault.codes(victim=index == start.harmed and not fault.survived)
            for fault, _, _ in injected
        )
    ]
    return [
        Result(
            *(str(choice.cell), run, fault.name, phase, codes, round(ended - began, 1)),
            # Of several faults, the last is the most likely cause.
            tuple(problems) if (fault, phase, began) == injected[-1] else (),
        )
        for fault, phase, began in injected
    ]

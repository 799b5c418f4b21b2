"""Jobs on several processes: all results, all reports, one clear error."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tupe_jax.data.pretraining import workers
from tupe_jax.utils.errors import UserError


def square(job: int, report: Callable[[int], None]) -> int:
    report(job)
    return job * job


def fail_at_two(job: int, report: Callable[[int], None]) -> int:
    if job == 2:
        raise UserError("two is wrong")
    while True:  # until another job fails
        report(1)
        time.sleep(0.01)


def die(job: int, report: Callable[[int], None]) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def write_forever(folder: str, report: Callable[[int], None]) -> int:
    while True:
        (Path(folder) / "alive").write_text(str(time.time()))
        time.sleep(0.01)


@pytest.mark.parametrize("count", [1, 2])
def test_all_jobs_are_done_and_shown(count: int) -> None:
    shown: list[tuple[int, int]] = []
    results = workers.run(square, range(5), count, lambda *progress: shown.append(progress))
    assert sorted(results) == [0, 1, 4, 9, 16]
    assert shown[-1] == (5, 10)
    assert shown == sorted(shown)


def test_no_jobs_are_no_results() -> None:
    assert list(workers.run(square, [], 2, lambda done, total: None)) == []


def test_the_first_error_stops_all_jobs() -> None:
    with pytest.raises(UserError, match="two is wrong"):
        list(workers.run(fail_at_two, [1, 2], 2, lambda done, total: None))


def test_a_killed_worker_is_an_error_and_no_hang() -> None:
    with pytest.raises(UserError, match="worker"):
        list(workers.run(die, [1, 2], 2, lambda done, total: None))


def test_workers_end_when_their_command_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"from {__name__} import write_forever\n"
        "from tupe_jax.data.pretraining import workers\n"
        "if __name__ == '__main__':\n"
        f"    folder = {str(tmp_path)!r}\n"
        "    list(workers.run(write_forever, [folder] * 2, 2, lambda done, total: None))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, str(script)], env=environment)
    alive = tmp_path / "alive"
    while not alive.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while time.time() - alive.stat().st_mtime < 0.5:
        assert time.monotonic() < deadline, "a worker still writes"
        time.sleep(0.1)

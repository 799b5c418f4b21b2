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


def report_itself(job: int, report: Callable[[int], None]) -> None:
    report(1 << job)


def fail_at_two(job: int, report: Callable[[int], None]) -> None:
    if job == 2:
        raise UserError("two is wrong")
    while True:  # until another job fails
        report(1)
        time.sleep(0.01)


def die(job: int, report: Callable[[int], None]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_forever(folder: str, report: Callable[[int], None]) -> None:
    while True:
        (Path(folder) / "alive").write_text(str(time.time()))
        time.sleep(0.01)


@pytest.mark.parametrize("count", [1, 2])
def test_all_jobs_are_done_and_shown(count: int) -> None:
    shown: list[tuple[int, int]] = []
    workers.run(count, report_itself, range(5), lambda *progress: shown.append(progress))
    assert shown[-1] == (5, 0b11111)
    assert shown == sorted(shown)


def test_without_jobs_no_process_starts() -> None:
    workers.run(2, die, [], lambda done, total: None)


def test_the_first_error_stops_all_jobs() -> None:
    with pytest.raises(UserError, match="two is wrong"):
        workers.run(2, fail_at_two, [1, 2], lambda done, total: None)


def test_a_killed_worker_is_an_error_and_no_hang() -> None:
    with pytest.raises(UserError, match="worker"):
        workers.run(2, die, [1, 2], lambda done, total: None)


def test_workers_end_when_their_command_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"from {__name__} import write_forever\n"
        "from tupe_jax.data.pretraining import workers\n"
        "if __name__ == '__main__':\n"
        f"    folder = {str(tmp_path)!r}\n"
        "    workers.run(2, write_forever, [folder] * 2, lambda done, total: None)\n"
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

"""launch/local.sh, with small real processes in place of tupe."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.scripts import LAUNCH, add_command, printed, run


@pytest.fixture
def tupe(tmp_path):
    """Makes a folder with a command `tupe` of this body; `process` is its number."""

    def make(body):
        text = f"#!{sys.executable} -IS\nimport os, signal, sys, time\n"
        text += "process = int(sys.argv[-1].removeprefix('--process='))\n"
        add_command(tmp_path / "bin", "tupe", text + body)
        return tmp_path / "bin"

    return make


def test_dry_run_prints_one_command_per_process():
    lines = printed(
        "local.sh", "--dry-run", "--processes=2", "--devices=4", "--", "pretrain", "a b"
    )
    assert lines == [
        "env JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=4 TUPE_TOKEN=TOKEN tupe pretrain 'a b' "
        f"--coordinator=localhost:PORT --processes=2 --process={process}"
        for process in range(2)
    ]


def test_each_process_gets_its_index_and_its_output_a_prefix(tupe, tmp_path):
    path = tupe("print(*sys.argv[1:], os.environ['JAX_NUM_CPU_DEVICES'])")
    logs = tmp_path / "logs"
    arguments = ("--processes=3", "--devices=2", f"--logs={logs}", "--", "pretrain", "--config=x y")
    lines = printed("local.sh", *arguments, path=path)
    (port,) = {line.partition("localhost:")[2].split()[0] for line in lines}
    expected = [
        f"pretrain --config=x y --coordinator=localhost:{port} --processes=3 --process={process} 2"
        for process in range(3)
    ]
    assert sorted(lines) == [f"[{process}] {line}" for process, line in enumerate(expected)]
    written = [(logs / f"process-{process}.log").read_text() for process in range(3)]
    assert written == [f"{line}\n" for line in expected]


def test_the_processes_of_a_run_share_a_token_that_no_other_run_has(tupe):
    path = tupe("print(os.environ['TUPE_TOKEN'])")
    first, second = (
        {line.split()[1] for line in printed("local.sh", "--", "x", path=path)} for _ in range(2)
    )
    assert len(first) == len(second) == 1
    assert first != second


def test_when_one_fails_the_others_are_stopped_and_its_code_is_returned(tupe):
    path = tupe("""
if process == 1:
    time.sleep(0.5)  # the others have begun
    sys.exit(7)
def stop(*_):
    print("saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
time.sleep(60)
""")
    done = run("local.sh", "--processes=3", "--", "x", path=path)
    assert done.returncode == 7, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] saved", "[2] saved"]


def test_processes_that_do_not_stop_are_killed_with_their_children(tupe, tmp_path):
    path = tupe(f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if process == 0:
    time.sleep(0.5)
    sys.exit(3)
child = os.fork()
if child:
    open({str(tmp_path / "child")!r}, "w").write(str(child))
time.sleep(60)
""")
    done = run("local.sh", "--processes=2", "--grace=1", "--", "x", path=path)
    assert done.returncode == 3
    assert "killing processes that did not stop within 1 s" in done.stderr
    child = Path("/proc", (tmp_path / "child").read_text(), "stat")
    assert not child.exists() or ") Z " in child.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_each_process_once_and_they_may_save(tupe, number):
    path = tupe("""
def stop(number, _):
    global stopping
    stopping.append(signal.Signals(number).name)
stopping = []
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
print("ready", flush=True)
while not stopping:
    time.sleep(0.02)
time.sleep(0.3)
print("saved after", *stopping, flush=True)
sys.exit(75)
""")
    launcher = subprocess.Popen(
        [LAUNCH / "local.sh", "--processes=2", "--", "x"],
        env=os.environ | {"PATH": f"{path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests in the background ignore Ctrl-C, and a shell cannot trap what it was born to ignore.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert launcher.stdout is not None
    assert sorted(launcher.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    os.killpg(launcher.pid, number)  # as a terminal does on Ctrl-C: to the whole group
    lines, _ = launcher.communicate(timeout=30)
    assert sorted(lines.splitlines()) == ["[0] saved after SIGTERM", "[1] saved after SIGTERM"]
    assert launcher.returncode == 75

"""launch/tpu_worker.sh: what happens on a worker, its system's commands recorded."""

import pytest

from tests.launch.scripts import add_command, add_recorder, calls, printed, run


@pytest.fixture
def system(tmp_path):
    """A folder of commands: sudo runs what it is given; the rest is recorded."""
    folder = tmp_path / "bin"
    add_command(folder, "sudo", '#!/usr/bin/env bash\nexec "$@"\n')
    for name in ("systemctl", "systemd-run", "journalctl", "uv"):
        add_recorder(folder, name)
    return folder


def test_the_run_is_a_unit_that_may_save_when_it_is_stopped(system, tmp_path):
    done = run(
        "tpu_worker.sh", "run", "--bucket=runs", "--", "pretrain", "--workdir=/mnt/runs/x",
        path=system, HOME=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert calls(system, "systemctl") == ["stop tupe", "reset-failed tupe"]
    (unit,) = calls(system, "systemd-run")
    for option in (
        "--unit=tupe",
        "--remain-after-exit",
        "--property=KillMode=mixed",
        "--property=TimeoutStopSec=120",
        "--property=RequiresMountsFor=/mnt/runs",
    ):
        assert f" {option} " in unit
    assert unit.endswith(f" {tmp_path}/tupe/bin/tupe pretrain --workdir=/mnt/runs/x")


@pytest.mark.parametrize(
    ("load", "sub", "code", "state"),
    [
        ("not-found", "dead", "0", "absent"),
        ("loaded", "running", "0", "running"),
        ("loaded", "stop-sigterm", "0", "running"),
        ("loaded", "exited", "0", "finished"),
        ("loaded", "failed", "75", "stopped 75"),
        ("loaded", "failed", "1", "failed 1"),
    ],
)
def test_the_state_of_the_run(system, load, sub, code, state):
    shown = f"printf 'LoadState={load}\\nSubState={sub}\\nExecMainStatus={code}\\n'"
    add_recorder(system, "systemctl", then=shown)
    assert printed("tpu_worker.sh", "state", path=system) == [f"run: {state}"]


@pytest.mark.parametrize(
    ("package", "requirement"),
    [
        ("tupe.whl", "tupe_jax[tpu] @ file://{home}/tupe.whl"),
        ("https://example.org/tupe@v1", "tupe_jax[tpu] @ git+https://example.org/tupe@v1"),
    ],
)
def test_the_package_is_installed_into_an_environment_of_its_own(
    system, tmp_path, package, requirement
):
    arguments = ("install", f"--package={package}")
    done = run("tpu_worker.sh", *arguments, path=system, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    make, install = calls(system, "uv")
    assert make.endswith(f"--python=3.12 {tmp_path}/tupe")
    assert install.endswith(
        f"--python={tmp_path}/tupe/bin/python {requirement}".format(home=tmp_path)
    )

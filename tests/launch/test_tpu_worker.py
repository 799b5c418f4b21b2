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
        "tpu_worker.sh", "run", "--token=t", "--bucket=runs", "--", "pretrain",
        "--workdir=/mnt/runs/x", path=system, HOME=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert calls(system, "systemctl") == ["stop tupe", "reset-failed tupe"]
    (unit,) = calls(system, "systemd-run")
    for option in (
        "--unit=tupe",
        "--remain-after-exit",
        "--property=KillMode=mixed",
        "--setenv=TUPE_TOKEN=t",
        "--property=TimeoutStopSec=120",
        "--property=RequiresMountsFor=/mnt/runs",
    ):
        assert f" {option} " in unit
    assert unit.endswith(f" {tmp_path}/tupe/bin/tupe pretrain --workdir=/mnt/runs/x")


@pytest.mark.parametrize(
    ("load", "sub", "kind", "code", "state"),
    [
        ("not-found", "dead", 0, 0, "absent"),
        ("loaded", "running", 0, 0, "running"),
        ("loaded", "stop-sigterm", 0, 0, "running"),
        ("loaded", "exited", 1, 0, "finished"),
        ("loaded", "failed", 1, 75, "stopped 75"),
        ("loaded", "failed", 1, 1, "failed 1"),
        ("loaded", "failed", 1, 2, "failed 2"),
        # Killed by SIGKILL, by SIGINT before there was a handler, and aborted by JAX.
        ("loaded", "failed", 2, 9, "failed 137"),
        ("loaded", "failed", 2, 2, "failed 130"),
        ("loaded", "failed", 3, 6, "failed 134"),
    ],
)
def test_the_state_of_the_run(system, load, sub, kind, code, state):
    properties = [f"LoadState={load}", f"SubState={sub}"]
    properties += [f"ExecMainCode={kind}", f"ExecMainStatus={code}"]
    shown = f"printf '%s\\n' {' '.join(properties)}"
    add_recorder(system, "systemctl", then=shown)
    assert printed("tpu_worker.sh", "state", path=system) == [f"run: {state}"]


@pytest.mark.parametrize(
    ("package", "requirement"),
    [
        ("tupe.whl", "tupe_jax[tpu,gcs] @ file://{home}/tupe.whl"),
        ("https://example.org/tupe@v1", "tupe_jax[tpu,gcs] @ git+https://example.org/tupe@v1"),
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
        f"--python={tmp_path}/tupe/bin/python --constraints={tmp_path}/constraints.txt "
        + requirement.format(home=tmp_path)
    )


@pytest.mark.parametrize(
    ("code", "answer"), [(0, "allowed"), (1, "unknown"), (2, "refused"), (76, "unknown")]
)
def test_progress_is_checked_by_the_installed_package(system, tmp_path, code, answer):
    add_recorder(tmp_path / "tupe/bin", "tupe", then=f"exit {code}")
    arguments = ("check-progress", "--token=t", "--retries=4", "--workdir=gs://b/w")
    lines = printed("tpu_worker.sh", *arguments, path=system, HOME=str(tmp_path))
    assert lines == [f"start: {answer}"]
    assert calls(tmp_path / "tupe/bin", "tupe") == ["check-progress gs://b/w --job=t --retries=4"]


def test_a_mounted_bucket_is_consistent_and_cached(system, tmp_path):
    """The options that gcsfuse 3 needs, in fstab."""
    for name in ("gcsfuse", "mkdir", "mount"):
        add_recorder(system, name)
    add_command(system, "mountpoint", "#!/usr/bin/env bash\nexit 1\n")
    add_recorder(system, "tee", then=f"cat >{tmp_path}/fstab")
    arguments = ("install", "--package=tupe.whl", "--bucket=runs")
    done = run("tpu_worker.sh", *arguments, path=system, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    bucket, folder, kind, options, *_ = (tmp_path / "fstab").read_text().split()
    assert (bucket, folder, kind) == ("runs", "/mnt/runs", "gcsfuse")
    assert {
        "enable_streaming_writes=false",
        "metadata_cache_ttl_secs=60",
        "metadata_cache_negative_ttl_secs=0",
        "cache_dir=/var/cache/gcsfuse",
    } <= set(options.split(","))
    assert calls(system, "mount") == ["/mnt/runs"]

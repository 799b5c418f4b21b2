"""launch/tpu_vm.sh: its gcloud commands, and its watch over a slice that is taken away."""

import pytest

from tests.launch.scripts import add_command, printed, run

PLACE = ("--name=tupe", "--zone=us-west4-a")
QUEUED = "gcloud compute tpus queued-resources"
EVERYWHERE = "tupe --zone=us-west4-a --node=all --worker=all --batch-size=all"
SCOPE = "--scopes=https://www.googleapis.com/auth/cloud-platform"


def dry(action, *arguments):
    return printed("tpu_vm.sh", action, *PLACE, "--dry-run", *arguments)


@pytest.mark.parametrize(
    ("accelerator", "runtime"),
    [
        ("v4-128", "tpu-ubuntu2204-base"),
        ("v5litepod-256", "v2-alpha-tpuv5-lite"),
        ("v5p-128", "v2-alpha-tpuv5"),
        ("v6e-256", "v2-alpha-tpuv6e"),
    ],
)
def test_the_runtime_version_follows_from_the_accelerator(accelerator, runtime):
    assert dry("create", f"--accelerator={accelerator}") == [
        f"{QUEUED} create tupe --zone=us-west4-a --accelerator-type={accelerator} "
        f"--runtime-version={runtime} --node-id=tupe {SCOPE}"
    ]


def test_slices_spot_reservation_project_and_account_become_options():
    (line,) = dry(
        "create", "--accelerator=v5p-128", "--slices=2", "--spot", "--project=p",
        "--service-account=a@b", "--runtime-version=mine",
    )  # fmt: skip
    assert line == (
        f"{QUEUED} create tupe --zone=us-west4-a --project=p --accelerator-type=v5p-128 "
        f"--runtime-version=mine --node-count=2 --node-prefix=tupe --spot {SCOPE} "
        "--service-account=a@b"
    )
    assert " --reserved " in dry("create", "--accelerator=v4-8", "--reserved")[0]


def test_the_package_comes_from_a_wheel_or_a_repository():
    assert dry("install", "--wheel=dist/tupe.whl", "--bucket=runs") == [
        f"{QUEUED} scp launch/tpu_worker.sh launch/../constraints.txt dist/tupe.whl "
        "tupe: " + EVERYWHERE.removeprefix("tupe "),
        f"{QUEUED} ssh {EVERYWHERE} "
        "'--command=bash tpu_worker.sh install --package=tupe.whl --bucket=runs'",
    ]
    lines = dry("install", "--git=https://example.org/tupe@v1")
    assert lines[0].startswith(
        f"{QUEUED} scp launch/tpu_worker.sh launch/../constraints.txt tupe: "
    )
    assert "install --package=https://example.org/tupe@v1'" in lines[1]


def test_the_other_commands():
    assert dry("run", "--bucket=runs", "--", "pretrain", "--workdir=/mnt/runs/a b") == [
        f"{QUEUED} ssh {EVERYWHERE} '--command=bash tpu_worker.sh run --token=TOKEN "
        r"--bucket=runs -- pretrain --workdir=/mnt/runs/a\ b'"
    ]
    assert dry("logs", "--worker=3", "--lines=9") == [
        f"{QUEUED} ssh tupe --zone=us-west4-a --worker=3 "
        "'--command=bash tpu_worker.sh logs --lines=9'"
    ]
    assert dry("stop") == [f"{QUEUED} ssh {EVERYWHERE} '--command=bash tpu_worker.sh stop'"]
    assert dry("delete") == [f"{QUEUED} delete tupe --zone=us-west4-a --force --quiet"]
    assert dry("status")[0] == (
        f"{QUEUED} describe tupe --zone=us-west4-a '--format=value(state.state)'"
    )


# Each `describe` is a look; line n of `story` is what look n finds: slice|worker|worker.
GCLOUD = r"""#!/usr/bin/env bash
cd "$(dirname "$0")" || exit
mapfile -t story <story
verb=$4 command=${!#}
if [[ $3 == tpu-vm ]]; then # the number of workers of a slice
  echo 2 && exit
elif [[ $verb == describe ]]; then
  echo "describe" >>calls
  look=$(($(grep -c describe calls) - 1))
  IFS='|' read -r state workers <<<"${story[look]}"
  echo "$workers" >workers
  echo "WARNING: Python 3.8 is no longer officially supported" >&2
  case $state in
    ABSENT) echo "ERROR: (gcloud.compute.tpus...describe) NOT_FOUND: no such thing" >&2 && exit 1 ;;
    OFFLINE) echo "ERROR: network unreachable" >&2 && exit 1 ;;
    *) echo "$state" && exit ;;
  esac
elif [[ $command == *'tpu_worker.sh state'* ]]; then
  IFS='|' read -ra workers <workers
  ((${#workers[@]})) || exit 255
  echo "Attempting to SSH into 1 nodes with a total of ${#workers[@]} workers."
  printf 'run: %s\n' "${workers[@]}"
  exit
elif [[ $verb == ssh ]]; then
  read -r _ _ verb _ <<<"$command"
fi
echo "$verb" >>calls
if [[ $verb == check-progress ]]; then # the next of these answers
  answer=$(sed -n "$(grep -c check-progress calls)p" checks)
  case ${answer:-allowed} in
    unreachable) exit 1 ;;
    *) echo "start: ${answer:-allowed}" && exit ;;
  esac
fi
[[ " $(<broken) " != *" $verb "* ]]
"""


@pytest.fixture
def resume(tmp_path):
    """Runs `resume` while each look finds the next of these: the slice's state, the workers' runs.

    Returns the result and what was done between the looks.
    """

    def run_resume(*looks, broken="", checks=(), retries=2):
        folder = tmp_path / "bin"
        add_command(folder, "gcloud", GCLOUD)
        add_command(folder, "sleep", "#!/bin/sh\n")
        (folder / "story").write_text("".join("|".join(look) + "\n" for look in looks))
        (folder / "broken").write_text(broken)
        (folder / "checks").write_text("".join(f"{answer}\n" for answer in checks))
        (tmp_path / "tupe.whl").touch()
        done = run(
            "tpu_vm.sh", "resume", *PLACE, "--accelerator=v5litepod-8", "--spot", "--poll=60",
            f"--retries={retries}", f"--wheel={tmp_path}/tupe.whl", "--", "pretrain",
            "--workdir=gs://b/w", path=folder,
        )  # fmt: skip
        calls = (folder / "calls").read_text().split()
        return done, [call for call in calls if call != "describe"]

    return run_resume


RESTART = ["check-progress", "run"]
START = ["scp", "install", *RESTART]
FINISHED = ["ACTIVE", "finished", "finished"]


def test_dry_run_prints_a_restart():
    lines = dry(
        "resume", "--accelerator=v4-8", "--git=u@r", "--retries=5", "--", "pretrain",
        "--workdir=gs://b/w",
    )  # fmt: skip
    assert lines[-3:] == [
        "# then, and after any exit code except 0 and 2:",
        f"{QUEUED} ssh tupe --zone=us-west4-a --node=0 --worker=0 '--command=bash tpu_worker.sh "
        "check-progress --token=TOKEN --retries=5 --workdir=gs://b/w'",
        f"{QUEUED} ssh {EVERYWHERE} '--command=bash tpu_worker.sh run --token=TOKEN -- pretrain "
        "--workdir=gs://b/w'",
    ]


def test_a_preempted_slice_is_requested_again_and_the_run_restarted(resume):
    done, actions = resume(
        ["ABSENT"],
        ["WAITING_FOR_RESOURCES"],
        ["PROVISIONING"],
        ["ACTIVE", "absent", "absent"],
        ["ACTIVE", "running", "running"],
        ["SUSPENDING"],
        ["SUSPENDED"],
        ["ACTIVE", "absent", "absent"],
        ["ACTIVE", "running", "running"],
        FINISHED,
    )
    assert done.returncode == 0, done.stderr
    assert actions == ["create", *START, "delete", "create", *START]
    assert "preempted" in done.stderr
    assert "delete ends the charges" in done.stderr


@pytest.mark.parametrize("end", ["stopped 75", "failed 76", "failed 134", "failed 137", "failed 1"])
def test_a_run_that_makes_progress_is_restarted_without_limit(resume, end):
    done, actions = resume(*[["ACTIVE", end, end]] * 4, FINISHED, retries=1)
    assert done.returncode == 0, done.stderr
    assert actions == RESTART * 4


def test_the_run_is_restarted_when_all_its_processes_have_ended(resume):
    done, actions = resume(
        ["ACTIVE", "running", "failed 137"], ["ACTIVE", "failed 76", "failed 137"], FINISHED
    )
    assert done.returncode == 0, done.stderr
    assert actions == RESTART
    assert "1 failed 137 1 failed 76" in done.stderr


@pytest.mark.parametrize("end", ["failed 76", "finished"])
def test_after_ten_minutes_a_process_that_does_not_end_is_restarted_with_the_others(resume, end):
    done, actions = resume(*[["ACTIVE", end, "running"]] * 11, FINISHED)
    assert done.returncode == 0, done.stderr
    assert actions == RESTART
    assert f"1 {end} 1 running" in done.stderr


def test_processes_may_end_one_after_the_other(resume):
    ending, running = ["ACTIVE", "failed 76", "running"], ["ACTIVE", "running", "running"]
    done, actions = resume(*[*[ending] * 10, running] * 2, FINISHED)
    assert done.returncode == 0, done.stderr
    assert actions == []


def test_a_run_without_progress_is_not_restarted(resume):
    done, actions = resume(
        *[["ACTIVE", "failed 76", "failed 76"]] * 2, checks=["allowed", "refused"]
    )
    assert done.returncode == 2
    assert actions == [*RESTART, "check-progress"]


def test_a_failed_connection_is_no_lack_of_progress(resume):
    done, actions = resume(
        *[["ACTIVE", "failed 76", "failed 76"]] * 2, FINISHED, checks=["unreachable", "allowed"]
    )
    assert done.returncode == 0, done.stderr
    assert actions == ["check-progress", *RESTART]


def test_unknown_progress_is_checked_again_but_not_forever(resume):
    ended = ["ACTIVE", "failed 76", "failed 76"]
    done, actions = resume(*[ended] * 10, FINISHED, checks=[*["unknown"] * 9, "allowed"])
    assert done.returncode == 0, done.stderr
    assert actions == ["check-progress"] * 9 + RESTART


def test_progress_that_stays_unknown_ends_the_script(resume):
    ended = ["ACTIVE", "failed 76", "failed 76"]
    done, actions = resume(*[ended] * 12, checks=["unknown"] * 12)
    assert done.returncode == 1
    assert actions == ["check-progress"] * 11
    assert "the slice still costs" in done.stderr


@pytest.mark.parametrize("states", [["failed 2", "failed 2"], ["failed 76", "failed 2"]])
def test_wrong_arguments_are_not_retried(resume, states):
    done, actions = resume(["ACTIVE", *states])
    assert done.returncode == 2
    assert actions == []


def test_nothing_is_decided_before_all_workers_answer(resume):
    done, actions = resume(["ACTIVE", "failed 76"], ["ACTIVE", "finished"], FINISHED)
    assert done.returncode == 0, done.stderr
    assert actions == []
    assert "1 of 2 workers answered" in done.stderr


def test_failures_of_gcloud_count_only_in_a_row(resume):
    unreachable = [["ACTIVE", "failed 1", "failed 1"]] * 2
    running = ["ACTIVE", "running", "running"]
    done, _ = resume(*unreachable, running, *unreachable, FINISHED, checks=["unreachable"] * 4)
    assert done.returncode == 0, done.stderr


def test_one_new_worker_restarts_all(resume):
    done, actions = resume(["ACTIVE", "running", "absent"], FINISHED)
    assert done.returncode == 0, done.stderr
    assert actions == START


def test_a_slice_out_of_reach_is_not_deleted(resume):
    done, actions = resume(*[["ACTIVE"]] * 20)
    assert done.returncode == 2
    assert actions == []
    assert "out of reach" in done.stderr


def test_the_script_waits_for_a_lost_network(resume):
    done, actions = resume(["OFFLINE"], ["OFFLINE"], FINISHED)
    assert done.returncode == 0, done.stderr
    assert actions == []


def test_repeated_failures_of_the_request_end_the_script(resume):
    done, actions = resume(*[["ABSENT"]] * 5, broken="create")
    assert done.returncode == 1
    assert actions == ["create"] * 3


def test_a_failed_request_is_repeated(resume):
    done, actions = resume(["FAILED"], FINISHED)
    assert done.returncode == 0, done.stderr
    assert actions == ["delete", "create"]


def test_a_failed_installation_is_repeated(resume):
    done, actions = resume(*[["ACTIVE", "absent", "absent"]] * 5, broken="install")
    assert done.returncode == 1
    assert actions == ["scp", "install"] * 3

"""launch/slurm.sbatch and launch/sweep.sbatch, with srun, scancel and scontrol of our own."""

import os
import re
import signal
import subprocess
import time

import pytest

from tests.launch.scripts import LAUNCH, add_recorder, calls, printed, run

RUN = ("pretrain", "--config=tupe_r", "--workdir=/shared/a b")
SRUN = "srun --cpus-per-task={cpus} --gpu-bind=none --label --kill-on-bad-exit=0 --wait=300 tupe"


def settings(script):
    """The #SBATCH lines, which SLURM reads only before the first command."""
    head, _, rest = (LAUNCH / script).read_text().partition("\nset -euo pipefail\n")
    assert "\n#SBATCH" not in rest
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", head, re.MULTILINE))


def test_dry_run_prints_the_step_and_the_requeueing():
    assert printed(
        "slurm.sbatch", "--dry-run", *RUN, SLURM_JOB_ID="12", SLURM_CPUS_PER_TASK="4"
    ) == [
        "tupe check-progress '/shared/a b' --job=12 --retries=3",
        f"{SRUN.format(cpus=4)} pretrain --config=tupe_r '--workdir=/shared/a b'",
        "# after any exit code except 0 and 2:",
        "scontrol requeue 12",
    ]


def test_one_process_per_gpu():
    asked = settings("slurm.sbatch")
    assert asked["gpus-per-node"] == asked["ntasks-per-node"]
    assert "gpus-per-task" not in asked  # it would hide a node's other GPUs from JAX


@pytest.mark.parametrize("script", ["slurm.sbatch", "sweep.sbatch"])
def test_a_job_is_warned_and_may_be_queued_again(script):
    asked = settings(script)
    assert asked["signal"] == "B:TERM@120"
    assert "requeue" in asked
    assert asked["open-mode"] == "append"


@pytest.fixture
def slurm(tmp_path):
    """A folder with an srun of this end; scancel reaches srun's processes as SLURM's does."""

    def make(then, state="RUNNING None", progress="exit 0"):
        folder = tmp_path / "bin"
        folder.mkdir()
        add_recorder(folder, "tupe", then=progress)
        add_recorder(folder, "squeue", then=f"echo {state}")
        add_recorder(folder, "srun", then=f"echo $$ >{folder}/pid; {then}")
        add_recorder(folder, "scancel", then=f'kill -USR1 "$(cat {folder}/pid)"')
        add_recorder(folder, "scontrol")
        return folder

    return make


@pytest.mark.parametrize(
    ("code", "queued"),
    [(0, False), (2, False), (1, True), (75, True), (76, True), (134, True), (137, True)],
)
def test_all_exit_codes_except_0_and_2_are_requeued(slurm, code, queued):
    path = slurm(f"exit {code}")
    done = run("slurm.sbatch", *RUN, path=path, SLURM_JOB_ID="12", TUPE_RETRIES="5")
    assert done.returncode == code
    assert calls(path, "tupe") == ["check-progress /shared/a b --job=12 --retries=5"]
    expected = SRUN.format(cpus=8).removeprefix("srun ") + " pretrain --config=tupe_r"
    assert calls(path, "srun") == [f"{expected} --workdir=/shared/a b"]
    assert calls(path, "scontrol") == (["requeue 12"] if queued else [])
    assert calls(path, "scancel") == []


@pytest.mark.parametrize(
    ("state", "queued"), [("COMPLETING None", False), ("COMPLETING TimeLimit", True)]
)
def test_a_cancelled_job_is_not_requeued(slurm, state, queued):
    path = slurm("exit 75", state=state)
    assert run("slurm.sbatch", *RUN, path=path, SLURM_JOB_ID="12").returncode == 75
    assert calls(path, "scontrol") == (["requeue 12"] if queued else [])


def check_answers(*codes):
    """`tupe` ends with the next of these codes each time, then with the last."""
    return f'codes=({" ".join(map(str, codes))}); n=$(wc -l <"$0.calls"); ' + (
        'exit "${codes[n <= ${#codes[@]} ? n - 1 : -1]}"'
    )


@pytest.mark.parametrize("code", [1, 76])
def test_a_job_whose_progress_is_unknown_is_requeued_without_a_start(slurm, code):
    path = slurm("exit 0", progress=check_answers(code))
    done = run("slurm.sbatch", *RUN, path=path, SLURM_JOB_ID="12", TUPE_PAUSE="0")
    assert done.returncode == code
    assert len(calls(path, "tupe")) == 4
    assert calls(path, "srun") == []
    assert calls(path, "scontrol") == ["requeue 12"]


def test_a_check_that_succeeds_after_an_outage_starts_the_job(slurm):
    path = slurm("exit 0", progress=check_answers(76, 76, 0))
    done = run("slurm.sbatch", *RUN, path=path, SLURM_JOB_ID="12", TUPE_PAUSE="0")
    assert done.returncode == 0, done.stderr
    assert len(calls(path, "srun")) == 1
    assert calls(path, "scontrol") == []


def test_unknown_progress_does_not_restart_a_job_forever(slurm):
    path = slurm("exit 0", progress=check_answers(76))
    many = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "100", "TUPE_PAUSE": "0"}
    assert run("slurm.sbatch", *RUN, path=path, **many).returncode == 2
    assert calls(path, "srun") == calls(path, "scontrol") == []


@pytest.mark.parametrize("code", [2, 127])
def test_without_progress_the_job_does_not_start_and_is_not_requeued(slurm, code):
    path = slurm("exit 0", progress=f"exit {code}")
    assert run("slurm.sbatch", *RUN, path=path, SLURM_JOB_ID="12").returncode == 2
    assert calls(path, "srun") == calls(path, "scontrol") == []


def stop_when_it_runs(path, script, *arguments, **environment):
    """Send SIGTERM to the script alone, as --signal=B:TERM does, once its step runs."""
    job = subprocess.Popen(
        ["bash", LAUNCH / script, *arguments],
        env=os.environ
        | {"PATH": f"{path}:{os.environ['PATH']}", "SLURM_JOB_ID": "12"}
        | environment,
    )
    while not (path / "ready").exists():
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    return job.wait(timeout=30)


SAVES = "trap 'sleep 0.3; exit 75' USR1; touch {path}/ready; while true; do sleep 0.05; done"


def test_a_warned_job_lets_its_processes_save_before_it_is_queued_again(slurm, tmp_path):
    path = slurm(SAVES.format(path=tmp_path / "bin"))
    assert stop_when_it_runs(path, "slurm.sbatch", *RUN) == 75
    # Not by a signal to srun: it kills its processes.
    assert calls(path, "scancel") == ["--signal=TERM 12"]
    assert calls(path, "scontrol") == ["requeue 12"]


SWEEP = ("--seeds=0,7", "--workdir=/shared/sweep", "--", "--config.train.steps=9")


def test_a_sweep_is_an_array_of_all_configs_and_seeds():
    lines = printed(
        "sweep.sbatch", "--dry-run", "--configs=tupe_r:tiny,configs/bert_a.py", "--at-once=2",
        "--sbatch=--partition=gpu", *SWEEP,
    )  # fmt: skip
    assert lines[0] == (
        f"sbatch --array=0-3%2 --export=ALL,TUPE_LAUNCH={LAUNCH} --partition=gpu "
        f"{LAUNCH}/sweep.sbatch --configs=tupe_r:tiny,configs/bert_a.py --at-once=2 "
        f"--sbatch=--partition=gpu {' '.join(SWEEP)}"
    )
    assert lines[1:] == [
        f"# {number}: {SRUN.format(cpus=8)} pretrain --config={config} "
        f"--workdir=/shared/sweep/{name}-seed{seed} --config.seed={seed} --config.train.steps=9"
        for number, (config, name, seed) in enumerate(
            [
                ("tupe_r:tiny", "tupe_r-tiny", 0),
                ("tupe_r:tiny", "tupe_r-tiny", 7),
                ("configs/bert_a.py", "bert_a", 0),
                ("configs/bert_a.py", "bert_a", 7),
            ]
        )
    ]


@pytest.mark.parametrize(
    ("configs", "seeds", "directory"),
    [
        ("mine/bert_a.py,configs/bert_a.py", "0", "bert_a-seed0"),
        ("tupe_r:tiny,bert_a,tupe_r:tiny", "0", "tupe_r-tiny-seed0"),
        ("tupe_r:tiny", "1,2,1", "tupe_r-tiny-seed1"),
    ],
)
def test_two_runs_in_one_work_directory_are_refused(configs, seeds, directory):
    done = run(
        "sweep.sbatch", "--dry-run", f"--configs={configs}", f"--seeds={seeds}", "--workdir=/w"
    )
    assert done.returncode == 2
    assert f"/w/{directory} would be the work directory of two runs" in done.stderr


def test_configs_may_stand_in_a_file(tmp_path):
    listed = tmp_path / "configs.txt"
    listed.write_text("# the paper's\ntupe_r:tiny\n\ntupe_a:tiny  # without b\n")
    lines = printed("sweep.sbatch", "--dry-run", f"--configs={listed}", *SWEEP)
    assert "--array=0-3 " in lines[0]
    assert [line.split("--config=")[1].split()[0] for line in lines[1:]] == [
        "tupe_r:tiny", "tupe_r:tiny", "tupe_a:tiny", "tupe_a:tiny",
    ]  # fmt: skip


def test_it_submits_what_dry_run_prints(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    add_recorder(folder, "sbatch")
    first, *_ = printed("sweep.sbatch", "--dry-run", "--configs=tupe_r:tiny", *SWEEP)
    assert run("sweep.sbatch", "--configs=tupe_r:tiny", *SWEEP, path=folder).returncode == 0
    assert [f"sbatch {call}" for call in calls(folder, "sbatch")] == [first]


def test_an_element_runs_its_config_and_seed_and_is_stopped_as_any_job(slurm, tmp_path):
    path = slurm(SAVES.format(path=tmp_path / "bin"))
    arguments = ("--configs=tupe_r:tiny,bert_a:tiny", *SWEEP)
    element = {"SLURM_ARRAY_TASK_ID": "3", "TUPE_LAUNCH": str(LAUNCH)}
    assert stop_when_it_runs(path, "sweep.sbatch", *arguments, **element) == 75
    (call,) = calls(path, "srun")
    assert "--config=bert_a:tiny --workdir=/shared/sweep/bert_a-tiny-seed7 --config.seed=7" in call
    assert calls(path, "scontrol") == ["requeue 12"]

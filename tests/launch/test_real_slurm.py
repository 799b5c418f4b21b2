"""launch/slurm.sbatch and launch/sweep.sbatch on a real SLURM cluster, with real runs."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.launch.scripts import LAUNCH
from tests.launch.slurm_cluster import MISSING, Cluster
from tests.training import runs
from tupe_jax.checkpointing.manager import newest_step
from tupe_jax.cli import main
from tupe_jax.run.starts import read_starts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MISSING, reason="SLURM is not installed (Debian: slurm-wlm)"),
]

ONE_PROCESS_PER_NODE = ("--gpus-per-node=1", "--ntasks-per-node=1", "--cpus-per-task=1")
TWO_NODES = ("--nodes=2", *ONE_PROCESS_PER_NODE)
PATIENCE = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    compiled = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    with Cluster(tmp_path_factory.mktemp("slurm"), **compiled) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return runs.make_corpus(tmp_path_factory.mktemp("corpus"))


def pretrain(corpus, workdir, **overrides):
    """The script and its arguments."""
    settings = runs.settings(corpus, **overrides)
    command = ("pretrain", "--config=tupe_r:tiny", f"--workdir={workdir}")
    return (LAUNCH / "slurm.sbatch", *command, *settings)


@pytest.fixture(scope="module")
def story(cluster, corpus):
    """A run that loses a process, is preempted, reaches its time limit, and is cancelled."""
    workdir = cluster.folder / "story"
    endless = {"train.steps": 10**7, "eval.every": 10**7, "checkpoint.every": 50}
    job = cluster.submit(*TWO_NODES, *pretrain(corpus, workdir, **endless))

    def wait_for_progress(start):
        def progress():
            starts = read_starts(workdir)
            newest = newest_step(workdir) or 0
            return len(starts) == start and newest > (starts[-1].newest_step or 0)

        cluster.wait(progress, PATIENCE, f"checkpoint after start {start}")

    wait_for_progress(start=1)
    nodes = cluster.show(job)["NodeList"]
    os.kill(tupe_process(cluster, job, task=1), signal.SIGKILL)

    wait_for_progress(start=2)
    urgent = cluster.submit(
        "--partition=urgent", *TWO_NODES, *pretrain(corpus, cluster.folder / "urgent")
    )
    cluster.wait(lambda: cluster.state(urgent) == "COMPLETED", PATIENCE, "urgent run")

    wait_for_progress(start=3)
    cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    # SLURM looks at time limits every 30 s.
    cluster.wait(lambda: cluster.restarts(job) == 3, PATIENCE, "restart after the time limit")
    cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=60")

    wait_for_progress(start=4)
    cluster.run("scancel", job)
    cluster.wait(lambda: cluster.state(job) == "CANCELLED", PATIENCE, "end")
    return {
        "nodes": nodes,
        "starts": read_starts(workdir),
        "ends": re.findall(r"launch/slurm.sbatch: (.*)", cluster.log(job).read_text()),
        "newest": newest_step(workdir),
        "metrics": runs.numbers(workdir),
        "urgent": newest_step(cluster.folder / "urgent"),
    }


def tupe_process(cluster, job, task):
    """The `tupe` process of a task."""
    (process,) = [
        process
        for process in cluster.processes(job=job, task=task)
        if b"pretrain" in Path(f"/proc/{process}/cmdline").read_bytes()
    ]
    return process


def test_a_run_on_two_nodes(story):
    assert story["nodes"] == "127.0.0.[1-2]"
    assert story["urgent"] == 12


def test_a_lost_process_a_preemption_and_a_time_limit_requeue_the_job(story):
    assert story["ends"][:3] == [
        "exit code 137; requeueing",
        "exit code 75; requeueing",
        "exit code 75; requeueing",
    ]


def test_scancel_ends_the_job(story):
    assert story["ends"][3:] == ["exit code 75; cancelled"]


def test_every_start_resumes_from_a_newer_checkpoint(story):
    steps = [start.newest_step for start in story["starts"]]
    assert steps[0] is None
    assert steps[1:] == sorted(set(steps[1:]))
    assert steps[-1] < story["newest"]


def test_no_step_is_lost_or_repeated(story):
    steps = [line["step"] for line in story["metrics"]]
    assert steps == list(range(1, len(steps) + 1))


def test_wrong_arguments_are_final(cluster, corpus):
    wrong = pretrain(corpus, cluster.folder / "wrong", **{"eval.every": 0})
    job = cluster.submit("--nodes=1", *ONE_PROCESS_PER_NODE, *wrong)
    cluster.wait(lambda: cluster.state(job) == "FAILED", PATIENCE, "end")
    assert cluster.show(job)["ExitCode"] == "2:0"
    assert cluster.restarts(job) == 0


def test_a_time_limit_that_leaves_no_time_to_train_ends_the_job(cluster, corpus):
    workdir = cluster.folder / "hasty"
    # It waits for a second process. To SLURM, this is a run that compiles for long.
    waits = ("--coordinator=127.0.0.1:9", "--processes=2", "--process=1")
    command = (*pretrain(corpus, workdir), *waits)
    options = ("--nodes=1", *ONE_PROCESS_PER_NODE, "--time=1")
    job = cluster.submit(*options, *command, TUPE_RETRIES="1")
    cluster.wait(lambda: cluster.state(job) == "FAILED", PATIENCE, "end")
    assert cluster.show(job)["ExitCode"] == "2:0"
    assert cluster.restarts(job) == 2
    log = cluster.log(job).read_text()
    assert log.count("requeueing") == 2
    assert f"2 starts of job {job} made no progress" in log


def test_an_array_of_jobs_prepares_data(cluster, corpus):
    """With the bytes of one process."""
    rows = cluster.folder / "rows"
    given = f"--task={runs.TASK} --vocabulary={corpus / 'v.model'} --length={runs.LENGTH}"
    prepare = f"tupe prepare {given} --cleaning=none --shards=2 --workers=1 --out={rows}"
    part = f"{prepare} --part=$SLURM_ARRAY_TASK_ID/2"
    array = cluster.submit("--array=0-1", "--cpus-per-task=1", f"--wrap={part}")

    def ends():
        return re.findall(r"JobState=(\w+)", cluster.run("scontrol", "show", "job", array))

    cluster.wait(lambda: ends() == ["COMPLETED"] * 2, PATIENCE, "array")
    assert not (rows / "index.json").exists()
    assert len(list(rows.glob("train-*"))) == 2
    assert main(prepare.split()[1:]) == 0
    expected = {path.name: path.read_bytes() for path in (corpus / "rows").iterdir()}
    assert {path.name: path.read_bytes() for path in rows.iterdir()} == expected


def test_a_sweep_trains_every_config(cluster, corpus):
    workdir = cluster.folder / "sweep"
    settings = runs.settings(corpus, **{"train.steps": 4})
    options = [f"--sbatch={option}" for option in ("--cpus-per-task=1", "--job-name=sweep")]
    cluster.run(
        LAUNCH / "sweep.sbatch", "--configs=tupe_r:tiny,bert_a:tiny", f"--workdir={workdir}",
        *options, "--", *settings,
    )  # fmt: skip
    runs_ = [workdir / f"{name}-tiny-seed0" for name in ("tupe_r", "bert_a")]
    cluster.wait(lambda: all(newest_step(run) == 4 for run in runs_), PATIENCE, "sweep")

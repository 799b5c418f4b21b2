"""The starts of a run that a launcher records, and when it must not restart the run again."""

import json

import pytest

from tupe_jax import cli
from tupe_jax.checkpointing.manager import FOLDER, newest_step
from tupe_jax.run.starts import STARTS_FILE, Start, starts_without_progress


def check(workdir, *arguments, job="7"):
    return cli.main(["check-progress", str(workdir), f"--job={job}", *arguments])


def add_checkpoint(workdir, name):
    (workdir / FOLDER / name).mkdir(parents=True)


def test_only_the_last_starts_of_the_same_job_at_the_same_step_count():
    starts = [Start(job, "", step) for job, step in [("1", None), ("1", 5), ("2", 5), ("1", 5)]]
    assert starts_without_progress(starts, "1", None) == 3
    assert starts_without_progress(starts, "1", 5) == 2
    assert starts_without_progress(starts, "1", 6) == 0
    assert starts_without_progress(starts, "2", 5) == 1
    assert starts_without_progress(starts, "3", 5) == 0


def test_going_back_to_an_older_checkpoint_is_no_progress():
    assert starts_without_progress([Start("1", "", 10)], "1", 5) == 1


def test_incomplete_and_damaged_checkpoints_do_not_count(tmp_path):
    assert newest_step(tmp_path) is None
    for name in ("5", "10", "15.damaged", "20.orbax-checkpoint-tmp"):
        add_checkpoint(tmp_path, name)
    assert newest_step(tmp_path) == 10


def test_a_run_without_progress_is_refused_and_a_newer_checkpoint_allows_it_again(tmp_path, capsys):
    workdir = tmp_path / "run"
    add_checkpoint(workdir, "5")
    assert [check(workdir, "--retries=1") for _ in range(3)] == [0, 0, 2]
    assert "2 starts of job 7 made no progress: the newest checkpoint is step 5" in (
        capsys.readouterr().err
    )
    add_checkpoint(workdir, "6")
    assert [check(workdir, "--retries=1") for _ in range(3)] == [0, 0, 2]
    lines = (workdir / STARTS_FILE).read_text().splitlines()
    assert [json.loads(line)["newest_step"] for line in lines] == [5, 5, 6, 6]


def test_a_new_job_counts_from_zero(tmp_path):
    assert [check(tmp_path, "--retries=0") for _ in range(2)] == [0, 2]
    assert check(tmp_path, "--retries=0", job="8") == 0


@pytest.mark.parametrize("retries", ["-1", "many"])
def test_a_wrong_limit_is_refused_before_anything_is_written(tmp_path, retries):
    workdir = tmp_path / "run"
    try:
        code = check(workdir, f"--retries={retries}")
    except SystemExit as exit_:
        code = exit_.code
    assert code == 2
    assert not workdir.exists()


def test_a_work_directory_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert check(tmp_path / "file") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_on_object_storage_a_checkpoint_is_complete_when_it_is_committed(gs_folder):
    (gs_folder / FOLDER / "5" / "commit_success.txt").write_text("committed")
    (gs_folder / FOLDER / "6" / "unfinished").write_text("")
    assert newest_step(gs_folder) == 5
    assert [check(gs_folder, "--retries=0") for _ in range(2)] == [0, 2]
    (gs_folder / FOLDER / "6" / "commit_success.txt").write_text("committed")
    assert check(gs_folder, "--retries=0") == 0
    lines = (gs_folder / STARTS_FILE).read_text().splitlines()
    assert [json.loads(line)["newest_step"] for line in lines] == [5, 6]


def test_a_bucket_that_does_not_exist_is_one_line(gcs, capsys):
    assert check("gs://no-such-bucket/run") == 2
    assert capsys.readouterr().err == "tupe check-progress: gs://no-such-bucket: no such bucket\n"

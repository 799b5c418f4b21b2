"""One preparation at a time writes into a folder, and late jobs of an earlier one do not."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.data.small_corpus import documents
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.prepare import prepare, prepare_part
from tupe_jax.data.pretraining.token_shards import INDEX_FILE, TOKENIZER_FILE, read_index
from tupe_jax.data.pretraining.unfinished import (
    UNFINISHED,
    begin,
    delete_unfinished,
    is_begun,
)
from tupe_jax.run.shard import WorkShard
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError

Job = Callable[[Callable[[int], None]], None]


@pytest.fixture
def settings(tmp_path: Path, tokenizer: SentencePieceTokenizer) -> PrepareConfig:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents(30)))
    return PrepareConfig(f"text:{tmp_path}/*.txt", tokenizer.path, length=32, shards=2)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def jobs_of_a_killed_driver(settings: PrepareConfig, folder: Path) -> list[Job]:
    """The first job of every stage, of a command whose runner has lost track of them."""
    lost: list[Job] = []

    def run(function: Any, jobs: Sequence[Any], show: Any) -> None:
        lost.append(lambda report: function(jobs[0], report))
        for job in jobs:
            function(job, lambda amount: None)

    prepare(settings, folder, runner=run)
    return lost


def test_a_job_of_an_earlier_command_writes_nothing(
    settings: PrepareConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    lost = jobs_of_a_killed_driver(replace(settings, deduplicate="exact"), folder)
    assert len(lost) == 3  # one of each stage

    def run_lost_jobs() -> None:
        before = contents(folder)
        for job in lost:
            with pytest.raises(UserError, match=r"settings\.json: .*job"):
                job(lambda amount: None)
        assert contents(folder) == before

    run_lost_jobs()  # the folder is finished
    shutil.rmtree(folder)
    run_lost_jobs()
    prepare_part(replace(settings, length=16), folder, WorkShard(1, 2))
    run_lost_jobs()


@pytest.mark.slow
def test_a_job_that_runs_while_its_folder_is_begun_again_writes_nothing(
    settings: PrepareConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    (job,) = jobs_of_a_killed_driver(settings, folder)
    shutil.rmtree(folder)
    prepare_part(settings, folder, WorkShard(1, 2))

    def begin_again(amount: int) -> None:
        shutil.rmtree(folder)
        prepare_part(replace(settings, length=16), folder, WorkShard(1, 2))
        before.append(contents(folder))

    before: list[dict[Path, bytes]] = []
    with pytest.raises(UserError, match=r"settings\.json: .*job"):
        job(begin_again)
    assert contents(folder) == before[-1]


def test_a_command_that_was_killed_while_it_deleted_is_completed_by_the_same_command(
    settings: PrepareConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    obstacle = folder / UNFINISHED / "00000"

    def hinder_deletion(jobs_done: int, jobs: int, tokens: int) -> None:
        obstacle.mkdir(exist_ok=True)
        (folder / f"{INDEX_FILE}.12ab34cd.tmp").touch()  # of an earlier command

    with pytest.raises(OSError, match="00000"):
        prepare(settings, folder, show=hinder_deletion)
    assert (folder / UNFINISHED / "settings.json").exists()
    index = read_index(folder)
    obstacle.rmdir()
    with pytest.raises(UserError, match="already finished"):
        prepare_part(settings, folder, WorkShard(0, 2))
    with pytest.raises(UserError, match="length 32"):
        prepare(replace(settings, length=16), folder)
    outcome = prepare(settings, folder)
    assert (outcome.index, outcome.work.tokens) == (index, 0)
    assert not (folder / UNFINISHED).exists()
    (folder / UNFINISHED).mkdir()  # killed at the very end
    with pytest.raises(UserError, match="already finished"):
        prepare(settings, folder)
    assert {path.name for path in folder.iterdir()} == {
        INDEX_FILE,
        TOKENIZER_FILE,
        *(shard.file for split in index.splits.values() for shard in split.shards),
    }


def test_the_progress_of_a_runner_is_the_number_of_files(
    settings: PrepareConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tupe_jax.data.pretraining.prepare.REFRESH_SECONDS", 0.01)
    shown: list[tuple[int, int]] = []

    def run(function: Any, jobs: Sequence[Any], show: Any) -> None:
        for number, job in enumerate(jobs):
            end = time.monotonic() + 10
            while shown[-1:] != [(number, 2)] and time.monotonic() < end:
                time.sleep(0.01)
            seen.append(shown[-1])
            function(job, lambda amount: None)

    seen: list[tuple[int, int]] = []
    prepare(
        settings,
        tmp_path / "rows",
        show=lambda jobs_done, jobs, tokens: shown.append((jobs_done, jobs)),
        runner=run,
    )
    assert seen == [(0, 2), (1, 2)]


def test_of_parts_that_begin_at_once_with_other_settings_one_passes(tmp_path: Path) -> None:
    for attempt in range(40):  # each time it is another race
        passed, refused = begin_at_once(tmp_path / str(attempt))
        assert (len(passed), len(refused)) == (1, 3)
        (file,) = (tmp_path / str(attempt) / UNFINISHED).iterdir()
        assert f'"seed": {passed[0]}' in file.read_text()


def test_on_object_storage_too(gs_folder: Any) -> None:
    passed, refused = begin_at_once(gs_folder)
    assert (len(passed), len(refused)) == (1, 3)
    assert f'"seed": {passed[0]}' in (gs_folder / UNFINISHED / "settings.json").read_text()


def test_the_leftovers_of_a_deletion_are_deleted_on_object_storage_too(gs_folder: Any) -> None:
    """There is no folder, and the settings may be gone already."""
    for settings in ({"seed": 0}, None):
        if settings:
            begin(gs_folder, settings)
        (gs_folder / UNFINISHED / "00000.json").write_text("{}")
        assert is_begun(gs_folder) == (settings is not None)
        delete_unfinished(gs_folder)
        assert not (gs_folder / UNFINISHED).exists()
        assert not is_begun(gs_folder)


def begin_at_once(folder: Any) -> tuple[list[int], list[int]]:
    """The seeds of the parts that pass, and of those that are refused."""
    start = threading.Barrier(4)
    passed: list[int] = []
    refused: list[int] = []

    def part(seed: int) -> None:
        start.wait()
        try:
            begin(folder, {"seed": seed})
            passed.append(seed)
        except UserError:
            refused.append(seed)

    threads = [threading.Thread(target=part, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return passed, refused

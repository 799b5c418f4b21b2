"""One preparation at a time writes into a folder, and late jobs of an earlier one do not."""

import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.data.small_corpus import documents
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.prepare import prepare, prepare_part
from tupe_jax.data.pretraining.unfinished import UNFINISHED, begin
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


def test_of_parts_that_begin_at_once_with_other_settings_one_passes(tmp_path: Path) -> None:
    for time in range(40):  # each time it is another race
        passed, refused = begin_at_once(tmp_path / str(time))
        assert (len(passed), len(refused)) == (1, 3)
        (file,) = (tmp_path / str(time) / UNFINISHED).iterdir()
        assert f'"seed": {passed[0]}' in file.read_text()


def test_on_object_storage_too(gs_folder: Any) -> None:
    passed, refused = begin_at_once(gs_folder)
    assert (len(passed), len(refused)) == (1, 3)
    assert f'"seed": {passed[0]}' in (gs_folder / UNFINISHED / "settings.json").read_text()


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

"""`tupe prepare` on Beam's runners and on a Dask cluster gives the bytes of a local run."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tupe_jax
from tests.data.small_corpus import documents
from tupe_jax.cli import main
from tupe_jax.data.pretraining.token_shards import read_index
from tupe_jax.data.pretraining.unfinished import UNFINISHED
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer

pytestmark = pytest.mark.slow

SHARDS = 12
ONE_LOCAL_WORKER = ("--workers=1",)
DEDUPLICATED = ("--deduplicate=exact",)
Prepare = Callable[..., int]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every file ends with the same five documents."""
    folder = tmp_path_factory.mktemp("corpus")
    for seed in range(SHARDS):
        texts = documents(40, seed) + documents(5, SHARDS)
        (folder / f"{seed:02d}.txt").write_text("\n\n".join(texts))
    return folder


@pytest.fixture(scope="module")
def prepare(corpus: Path, tokenizer: SentencePieceTokenizer) -> Prepare:
    def run(out: Path, *arguments: str) -> int:
        command = ["prepare", f"--task=text:{corpus}/*.txt", f"--vocabulary={tokenizer.path}"]
        return main([*command, f"--out={out}", "--length=32", f"--shards={SHARDS}", *arguments])

    return run


@pytest.fixture(scope="module")
def local(prepare: Prepare, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """By --deduplicate, the files of a local run."""
    folder = tmp_path_factory.mktemp("local")
    for name in ("none", "exact"):
        assert prepare(folder / name, *ONE_LOCAL_WORKER, f"--deduplicate={name}") == 0
    (source,) = read_index(folder / "exact").sources
    assert (source.compared, source.copies) == (45 * SHARDS, 5 * (SHARDS - 1))
    assert len(read_index(folder / "none").splits["train"].shards) == SHARDS
    return {name: contents(folder / name) for name in ("none", "exact")}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The scheduler file of a Dask cluster on loopback, and its two workers of one thread each."""
    folder = tmp_path_factory.mktemp("dask")
    environment = {**os.environ, "PYTHONPATH": str(Path(tupe_jax.__file__).parents[1])}
    file = folder / "scheduler.json"

    def start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", f"--scheduler-file={file}"]
        with (folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                [*command, "--no-dashboard", *arguments],
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    processes = [start("dask_scheduler", "--host=127.0.0.1", "--port=0")]
    try:
        while not file.exists():
            assert processes[0].poll() is None, (folder / "dask_scheduler.log").read_text()
            time.sleep(0.05)
        processes += [start("dask_worker", "--nthreads=1", "--no-nanny") for _ in range(2)]
        yield f"--dask_scheduler_file={file}", processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_several_workers_of_the_direct_runner(
    prepare: Prepare, local: dict[str, dict], tmp_path: Path
) -> None:
    options = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    assert prepare(tmp_path / "rows", "--runner=DirectRunner", *options) == 0
    assert contents(tmp_path / "rows") == local["none"]


def test_a_dask_cluster_with_and_without_the_death_of_a_worker(
    prepare: Prepare,
    local: dict[str, dict],
    cluster: tuple[str, list[subprocess.Popen[bytes]]],
    tmp_path: Path,
) -> None:
    scheduler, workers = cluster
    on_dask = ("--runner=DaskRunner", scheduler, *DEDUPLICATED)
    assert prepare(tmp_path / "calm", *on_dask) == 0
    assert contents(tmp_path / "calm") == local["exact"]
    left: list[int] = []

    def kill_in_the_middle() -> None:
        unfinished = tmp_path / "rows" / UNFINISHED
        while not (done := list(unfinished.glob("0*.json"))):
            time.sleep(0.005)
        workers[0].kill()
        left.append(SHARDS - len(done))

    killer = threading.Thread(target=kill_in_the_middle, daemon=True)
    killer.start()
    assert prepare(tmp_path / "rows", *on_dask) == 0
    killer.join()
    assert workers[0].wait() < 0
    assert left[0] > 0
    assert contents(tmp_path / "rows") == local["exact"]


def test_parts_in_any_order(
    prepare: Prepare, local: dict[str, dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hashes of all parts must be there before the first shard is made: three rounds."""
    out = tmp_path / "rows"
    for last_stage in ("ranges of hashes", "shards", "shards"):
        for part in ("2/4", "0/4", "3/4", "1/4"):
            capsys.readouterr()
            assert prepare(out, f"--part={part}", *DEDUPLICATED, *ONE_LOCAL_WORKER) == 0
            assert not (out / "index.json").exists()
        # The last part finds the stage complete, and begins the next one.
        assert f" {last_stage}" in capsys.readouterr().out
    made = {path: path.stat().st_mtime_ns for path in out.glob("train-*")}
    assert len(made) == SHARDS
    assert prepare(out, *DEDUPLICATED, *ONE_LOCAL_WORKER) == 0
    assert contents(out) == local["exact"]
    assert made == {path: path.stat().st_mtime_ns for path in made}


def test_an_error_of_a_job_is_the_same_line_as_of_a_local_run(
    tokenizer: SentencePieceTokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\n\nb\xffd")
    command = ["prepare", f"--task=text:{tmp_path}/a.txt", f"--vocabulary={tokenizer.path}"]
    lines = []
    on_beam = "--runner=DirectRunner"
    processes = [on_beam, "--direct_running_mode=multi_processing", "--direct_num_workers=1"]
    for arguments in (["--workers=1"], [on_beam], processes):
        assert main([*command, f"--out={tmp_path}/rows", *arguments]) == 2
        lines.append(capsys.readouterr().err.strip().splitlines()[-1])
    assert f"{tmp_path}/a.txt, line 3: " in lines[0]
    assert lines == lines[:1] * 3
    assert not [record for record in caplog.records if "UTF-8" in record.getMessage()]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--runner=Nowhere"], "DaskRunner"),
        (["--runner="], "DaskRunner"),
        (["--runner=tupe_jax.Nowhere"], "Nowhere"),
        (["--runner=dask", "--dask_client_addres=x"], "--dask_client_addres=x"),
        (["--runner=DirectRunner", "--direct_num_worker=2"], "--direct_num_worker=2"),
        (["--runner=DirectRunner", "--direct_num_workers=two"], "two"),
    ],
)
def test_beam_refuses_its_wrong_options(
    prepare: Prepare,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    named: str,
) -> None:
    assert prepare(tmp_path / "rows", *arguments) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("tupe prepare: --runner=")
    assert named in line
    assert not (tmp_path / "rows").exists()

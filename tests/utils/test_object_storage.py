"""Files on object storage, with the real client and an emulator."""

import os
import subprocess
import sys
import threading

import pytest

from tupe_jax import cli
from tupe_jax.training.monitoring.metrics import METRICS_FILE, MetricWriter, read_metrics
from tupe_jax.utils import object_storage
from tupe_jax.utils.errors import RETRY_EXIT_CODE, RetryError, UserError
from tupe_jax.utils.files import atomic_file, file_sizes, file_version, local_file
from tupe_jax.utils.object_storage import check_reachable, storage_errors, with_time_limit
from tupe_jax.utils.paths import storage_path


def test_an_object_is_the_old_one_or_the_new_one(gs_folder):
    file = gs_folder / "table.md"
    with atomic_file(file) as unfinished:
        unfinished.write_text("old")
        assert not file.exists()
    version = file_version(file)
    with pytest.raises(TypeError), atomic_file(file) as unfinished:
        unfinished.write_text(None)
    assert file.read_text() == "old"
    assert file_version(file) == version
    with atomic_file(file) as unfinished:
        unfinished.write_text("new")
    assert file.read_text() == "new"
    assert file_version(file) != version
    assert file_sizes(gs_folder) == {"table.md": 3}


@pytest.mark.parametrize("content", [b"", b"ends in\r", b"\n\n", bytes(range(256)) * 30_000])
def test_any_content_returns_as_it_was(content, gs_folder):
    file = gs_folder / "a.bin"
    with atomic_file(file) as unfinished:
        unfinished.write_bytes(content)
    assert file.read_bytes() == content
    with local_file(file) as local:
        assert local.read_bytes() == content


def test_what_another_process_writes_is_seen(gcs, gs_folder):
    """Gcsfs would answer from the listing that it made before."""
    (gs_folder / "one").write_text("")
    assert [path.name for path in gs_folder.iterdir()] == ["one"]
    name = str(gs_folder / "two").removeprefix("gs://runs/")
    gcs.write(name, b"")
    assert (gs_folder / "two").exists()
    assert sorted(path.name for path in gs_folder.iterdir()) == ["one", "two"]


def test_metrics_are_in_the_bucket_after_each_flush(gs_folder):
    writer = MetricWriter(gs_folder)
    for step in (1, 2, 3):
        writer.write(step, {"loss": 1 / step})
    writer.flush()
    writer.write(4, {"loss": 0.25})
    assert [line["step"] for line in read_metrics(gs_folder / METRICS_FILE)] == [1, 2, 3]
    # The process is killed here. The next one resumes from step 2.
    resumed = MetricWriter(gs_folder)
    resumed.truncate_after(2)
    assert [line["step"] for line in read_metrics(gs_folder / METRICS_FILE)] == [1, 2]
    resumed.write(3, {"loss": 1 / 3})
    resumed.close()
    assert [line["step"] for line in read_metrics(gs_folder / METRICS_FILE)] == [1, 2, 3]
    (events, _) = sorted((gs_folder / "tensorboard").iterdir())
    assert len(events.read_bytes()) > 100


def test_metrics_do_not_wait_for_a_flush_for_long(gs_folder, monkeypatch):
    monkeypatch.setattr("tupe_jax.training.monitoring.metrics.UPLOAD_SECONDS", 0.0)
    writer = MetricWriter(gs_folder)
    writer.write(1, {"loss": 1.0})
    assert [line["step"] for line in read_metrics(gs_folder / METRICS_FILE)] == [1]


def test_a_missing_bucket_is_named(gcs):
    with pytest.raises(UserError, match="gs://no-such-bucket: "):
        check_reachable(storage_path("gs://no-such-bucket/run"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, UserError), (403, UserError), (404, UserError), (503, RetryError)],
)
def test_what_the_client_raises_is_one_line(gcs, status, expected):
    from gcsfs.retry import validate_response  # it makes the exceptions of all answers

    with pytest.raises(UserError, match="object storage: ") as error, storage_errors():
        validate_response(status, b"an answer", "b/runs/o/x")
    assert type(error.value) is expected


def test_other_errors_are_left_alone():
    with pytest.raises(KeyError), storage_errors():
        raise KeyError("a mistake of ours")


@pytest.mark.parametrize("question", ["exists", "is_dir", "is_file"])
def test_an_outage_is_not_a_missing_path(question, gs_folder, monkeypatch):
    (gs_folder / "file").write_text("")

    async def fail(*_, **__):
        raise ConnectionResetError("the network is down")

    ask = getattr(gs_folder, question)
    assert ask() == (question != "is_file")
    assert not getattr(gs_folder / "absent", question)()
    # What all requests of the client go through.
    monkeypatch.setattr("gcsfs.core.GCSFileSystem._request", fail)
    with pytest.raises(RetryError, match="the network is down"), storage_errors():
        ask()


def test_an_outage_while_a_command_looks_for_its_input_is_a_retry(
    gs_folder, tmp_path, monkeypatch, capsys
):
    async def fail(*_, **__):
        raise ConnectionResetError("the network is down")

    monkeypatch.setattr("gcsfs.core.GCSFileSystem._request", fail)
    assert cli.main(["import-hf", str(gs_folder), str(tmp_path)]) == RETRY_EXIT_CODE
    assert "the network is down" in capsys.readouterr().err


def test_a_client_without_a_time_limit_gets_one(gs_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(object_storage, "ANSWER_SECONDS", 0.1)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(RetryError, match="https_proxy"):
        with_time_limit(gs_folder, threading.Event().wait)
    assert with_time_limit(gs_folder, lambda: 3) == 3
    with pytest.raises(ValueError, match="of the client"):
        with_time_limit(gs_folder, lambda: int("of the client"))
    threads = threading.active_count()
    assert with_time_limit(tmp_path, threading.active_count) == threads


@pytest.mark.slow
def test_shards_behind_a_proxy_that_does_not_answer_are_a_retry():
    """ArrayRecord's client alone would try for more than ten minutes."""
    program = """
from tupe_jax.data.pretraining.readers import TokenShards
from tupe_jax.data.pretraining.token_shards import ShardFile, record_type
from tupe_jax.utils import object_storage
from tupe_jax.utils.paths import storage_path
object_storage.ANSWER_SECONDS = 3.0
shards = [ShardFile("shard.arecord", rows=4, bytes=100)]
TokenShards(storage_path("gs://runs/behind"), shards, record_type("stream", 99, 8)).read([0])
"""
    proxies = {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | proxies,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "RetryError: gs://runs/behind/shard.arecord" in done.stderr.splitlines()[-1]
    assert "http_proxy is set" in done.stderr


@pytest.mark.slow
def test_storage_that_does_not_answer_ends_in_a_retry(gcs, monkeypatch):
    """After the client's own attempts, half a minute."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(RetryError, match="object storage"):
        check_reachable(storage_path("gs://away/run"))

"""`tupe bench reader`, on a given folder or on random data."""

import json
from pathlib import Path

import pytest

from tupe_jax import cli
from tupe_jax.bench import reader_speed, timing
from tupe_jax.commands import bench
from tupe_jax.data.pretraining.token_shards import read_index


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SECONDS_PER_REPEAT", 0.02)
    monkeypatch.setattr(bench, "RANDOM_ROWS", 800)
    monkeypatch.setattr(bench, "RANDOM_SHARDS", 8)


@pytest.mark.slow
def test_one_json_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "reader", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert (result["what"], result["shape"]) == ("reader", [256, 512])
    assert 0 < result["lowest"] <= result["tokens_per_second"] <= result["highest"]
    assert set(result["resume_seconds"]) == {"10", "1000000"}


def test_a_given_folder_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader_speed.write_random_sequences(tmp_path, rows=64, length=16)
    assert read_index(tmp_path).splits["train"].rows == 64
    assert cli.main(["bench", "reader", f"--data={tmp_path}", "--batch-size=4"]) == 0
    assert capsys.readouterr().out.startswith("reader 4 x 16: ")


@pytest.mark.slow
def test_latency_is_added_to_each_read_and_reads_overlap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader_speed.write_random_sequences(tmp_path, rows=256, length=16, shards=64)
    arguments = ["bench", "reader", f"--data={tmp_path}", "--batch-size=64", "--json"]
    assert cli.main([*arguments, "--latency=50ms", "--hosts=2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["shape"] == [32, 16]
    # One after the other, the 32 reads of a batch would take 1.6 s.
    assert min(result["batch_seconds"]) < 0.4
    # The first batch waits for the opening of a shard and for a read.
    assert min(result["resume_seconds"].values()) > 4 * 0.05
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--latency=30"])
    assert ended.value.code == cli.USER_ERROR_EXIT_CODE
    assert "--latency" in capsys.readouterr().err


def test_a_folder_that_is_not_prepared_is_a_user_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "reader", f"--data={tmp_path}"]) == cli.USER_ERROR_EXIT_CODE
    assert "tupe prepare" in capsys.readouterr().err

"""Prepared data: a batch is a function of (seed, step), for any number of processes."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tupe_jax.data.pretraining import readers
from tupe_jax.data.pretraining.readers import HostShard, PreparedReader, State, TokenShards
from tupe_jax.data.pretraining.token_shards import (
    INDEX_FILE,
    PreparedIndex,
    Split,
    examples_of,
    read_index,
    record_type,
    shard_file_name,
    write_index,
    write_shard,
)
from tupe_jax.utils.errors import RetryError, UserError

MakeFolder = Callable[..., Path]

SEQUENCES, LENGTH, BATCH = (
    23,
    4,
    8,
)  # 23 sequences in batches of 8: every third batch straddles two epochs.


@pytest.fixture(scope="module")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    """Return a function that writes a folder. Sequence n is n * length, n * length + 1, ..."""

    def make(
        rows: int = 23, length: int = 4, shards: int = 3, sha256: str = "ab" * 32, **more: Any
    ) -> Path:
        folder = tmp_path_factory.mktemp("prepared")
        parts = np.array_split(np.arange(rows * length).reshape(rows, length), shards)
        record = record_type(more.get("packing", "stream"), 1024, length)
        written = tuple(
            write_shard(folder / shard_file_name("train", number, shards), examples, record)
            for number, examples in enumerate(map(numbered_examples, parts))
        )
        split = Split(shards=written, rows=rows, tokens=rows * length, documents=1)
        write_index(folder, PreparedIndex("toy", sha256, 1024, length, 0, {"train": split}, **more))
        return folder

    return make


@pytest.fixture(scope="module")
def folder(make_folder: MakeFolder) -> Path:
    return make_folder(SEQUENCES, LENGTH)


def numbered_examples(tokens: NDArray[np.int64]) -> Iterator[Mapping[str, Any]]:
    """Return examples whose other features follow from the tokens."""
    return examples_of(
        {"tokens": tokens, "segments": tokens % 2, "is_random_next": tokens[:, 0] % 2}
    )


def reader_of(folder: Path, host_shard: HostShard = HostShard(), **changes: Any) -> PreparedReader:  # noqa: B008
    settings = {"split": "train", "batch_size": BATCH, "seed": 5} | changes
    index = read_index(folder)
    settings = {"vocabulary_sha256": index.vocabulary_sha256} | settings
    return PreparedReader(folder, index, host_shard=host_shard, **settings)


def test_sequences_of_another_tokenizer_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"abababababab.*cdcdcdcdcdcd"):
        reader_of(folder, vocabulary_sha256="cd" * 32)


def take(reader: PreparedReader, steps: int) -> NDArray[np.int32]:
    return np.concatenate([reader.next()["tokens"] for _ in range(steps)])


def take_from_all(readers: list[PreparedReader]) -> NDArray[np.int32]:
    return np.concatenate([reader.next()["tokens"] for reader in readers])


def numbers_of(tokens: NDArray[np.int32]) -> list[int]:
    return (tokens[:, 0] // LENGTH).tolist()


def test_a_batch_is_ready_for_the_device(folder: Path) -> None:
    tokens = reader_of(folder).next()["tokens"]
    assert (tokens.shape, tokens.dtype) == ((BATCH, LENGTH), np.int32)
    assert tokens.flags["C_CONTIGUOUS"]


def test_sequences_are_read_as_written(folder: Path) -> None:
    tokens = take(reader_of(folder), 3)
    assert (tokens == tokens[:, :1] + np.arange(LENGTH)).all()


def test_every_sequence_comes_once_per_epoch_and_epochs_differ_in_order(folder: Path) -> None:
    numbers = numbers_of(take(reader_of(folder), SEQUENCES))  # BATCH epochs
    epochs = [numbers[start : start + SEQUENCES] for start in range(0, len(numbers), SEQUENCES)]
    assert all(sorted(epoch) == list(range(SEQUENCES)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == BATCH


def test_the_next_seed_is_not_the_same_stream_an_epoch_later(folder: Path) -> None:
    first, second = (numbers_of(take(reader_of(folder, seed=seed), SEQUENCES)) for seed in (0, 1))
    assert second[:SEQUENCES] != first[:SEQUENCES]
    assert second[:SEQUENCES] != first[SEQUENCES : 2 * SEQUENCES]


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> list[tuple[State, NDArray[np.int32]]]:
    """Return the state before each batch, as it comes back from JSON, and the batch."""
    reader = reader_of(folder)
    return [(json.loads(json.dumps(reader.state())), reader.next()["tokens"]) for _ in range(45)]


@given(step=st.integers(0, 40))
@settings(max_examples=20, deadline=None)
def test_restoring_at_any_step_gives_the_same_batches(
    folder: Path, uninterrupted: list[tuple[State, NDArray[np.int32]]], step: int
) -> None:
    reader = reader_of(folder)
    reader.next()  # It has begun to prefetch, which must be undone.
    reader.restore(uninterrupted[step][0])
    for state, tokens in uninterrupted[step : step + 5]:
        assert reader.state() == state
        assert (reader.next()["tokens"] == tokens).all()


@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_run_continues_on_another_number_of_processes(
    folder: Path, before: int, after: int
) -> None:
    alone = reader_of(folder)
    first = [reader_of(folder, HostShard((process,), before)) for process in range(before)]
    for _ in range(4):
        assert (take_from_all(first) == alone.next()["tokens"]).all()
    states = [reader.state() for reader in first]
    assert all(state == states[0] for state in states)
    second = [reader_of(folder, HostShard((process,), after)) for process in range(after)]
    for reader in second:
        reader.restore(states[0])
    for _ in range(4):
        assert (take_from_all(second) == alone.next()["tokens"]).all()


def test_a_host_shard_need_not_be_contiguous(folder: Path) -> None:
    alone = reader_of(folder)
    host_shards = [HostShard((0, 2), 4), HostShard((1, 3), 4)]
    pair = [reader_of(folder, host_shard) for host_shard in host_shards]
    for _ in range(4):  # past the end of an epoch
        batch = alone.next()["tokens"]
        for host_shard, reader in zip(host_shards, pair, strict=True):
            assert (reader.next()["tokens"] == batch[host_shard.indices(BATCH)]).all()


@pytest.mark.parametrize("step", [10, 1_000_000])
def test_resuming_reads_only_the_batches_it_serves(
    folder: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real_read = TokenShards.read

    def counting_read(self: TokenShards, numbers: list[int]) -> NDArray[np.int32]:
        read.extend(numbers)
        return real_read(self, numbers)

    monkeypatch.setattr(TokenShards, "read", counting_read)
    reader = reader_of(folder)
    reader.restore({**reader.state(), "step": step})
    reader.next()
    assert reader.state()["step"] == step + 1
    ahead = readers.MOST_BATCHES_AHEAD
    assert len(read) <= (1 + ahead) * BATCH


def test_many_threads_open_each_shard_once(folder: Path) -> None:
    index = read_index(folder)
    opened: list[str] = []

    def open_slowly(path: Path) -> Any:
        opened.append(path.name)
        time.sleep(0.05)
        return readers.open_shard(path)

    split = index.splits["train"]
    shards = TokenShards(folder, split.shards, index.record, open_slowly)
    assert not opened
    numbers = [0, 1, 2] * 20
    assert (shards.read(numbers)["tokens"][:, 0] // LENGTH).tolist() == numbers
    assert opened == [split.shards[0].file]


def test_batches_ahead_are_bounded_by_memory() -> None:
    small, large, huge = (readers.prefetch(sequences, 512) for sequences in (32, 4096, 1 << 20))
    assert small.prefetch_buffer_size == readers.MOST_BATCHES_AHEAD
    assert large.prefetch_buffer_size * 4096 * 512 * 4 == readers.PREFETCH_BYTES
    assert huge.prefetch_buffer_size == 2
    for options in (small, large, huge):
        assert 1 <= options.num_threads <= options.prefetch_buffer_size


def test_thousands_of_shards_raise_the_limit_of_open_files(tmp_path: Path) -> None:
    """In a process of its own, whose limit is lower than the number of shards."""
    code = f"""
import resource
from pathlib import Path
from tests.data.pretraining.test_readers import TokenShards
from tupe_jax.bench.reader_speed import write_random_sequences
from tupe_jax.data.pretraining.token_shards import read_index
from tupe_jax.utils.paths import Path
folder = Path({str(tmp_path)!r})
write_random_sequences(folder, rows=80, length=4, shards=80)
resource.setrlimit(resource.RLIMIT_NOFILE, (70, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
index = read_index(folder)
TokenShards(folder, index.splits["train"].shards, index.record).read(range(80))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_batch_may_be_larger_than_an_epoch(folder: Path) -> None:
    numbers = numbers_of(take(reader_of(folder, batch_size=2 * SEQUENCES), 1))
    assert sorted(numbers) == sorted(2 * list(range(SEQUENCES)))


def test_a_copied_folder_continues_the_run(folder: Path, tmp_path: Path) -> None:
    reader = reader_of(folder)
    take(reader, 3)
    copied = reader_of(shutil.copytree(folder, tmp_path / "copy"))
    copied.restore(reader.state())
    assert (copied.next()["tokens"] == reader.next()["tokens"]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 6}, "seed 5.* 6"),
        ({"batch_size": 4}, "batch_size 8.* 4"),
    ],
)
def test_the_state_of_other_settings_is_refused(
    folder: Path, change: dict[str, int], message: str
) -> None:
    state = reader_of(folder).state()
    with pytest.raises(UserError, match=message):
        reader_of(folder, **change).restore(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 24}, "rows 23.* 24"),
        ({"length": 3}, "length 4.* 3"),
        ({"shards": 2}, "shards_sha256"),
        ({"sha256": "cd" * 32}, "vocabulary_sha256 'abab.*'cdcd"),
        ({"packing": "sentences"}, "packing None.*'sentences'"),
    ],
)
def test_the_state_of_another_folder_is_refused(
    folder: Path, make_folder: MakeFolder, change: dict[str, Any], message: str
) -> None:
    state = reader_of(folder).state()
    with pytest.raises(UserError, match=message):
        reader_of(make_folder(**change)).restore(state)


def test_a_state_has_the_keys_of_older_versions(folder: Path) -> None:
    """Checkpoints of older versions resume."""
    assert set(reader_of(folder).state()) == {
        "reader",
        "task",
        "vocabulary_sha256",
        "length",
        "split",
        "rows",
        "shards_sha256",
        "batch_size",
        "seed",
        "step",
    }


def test_a_batch_that_cannot_be_split_names_both_numbers(folder: Path) -> None:
    with pytest.raises(UserError, match=r"\b8 .*\b3 "):
        reader_of(folder, HostShard((0,), 3))
    with pytest.raises(UserError, match="part 2"):
        HostShard((0, 2), 2)
    with pytest.raises(UserError, match="ascending"):
        HostShard((1, 0), 2)


def test_an_unknown_split_is_named_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(UserError, match=r"'test'.*train"):
        reader_of(folder, split="test")


def test_damage_inside_a_shard_names_the_shard(make_folder: MakeFolder) -> None:
    folder = make_folder(rows=2000, length=32)
    shard = folder / read_index(folder).splits["train"].shards[1].file
    content = bytearray(shard.read_bytes())
    content[1000:20_000] = bytes(19_000)
    shard.write_bytes(content)
    with pytest.raises(UserError, match=shard.name):
        take(reader_of(folder, batch_size=500), 4)


def test_a_failing_disk_is_not_a_broken_shard(folder: Path, monkeypatch: Any) -> None:
    reader = reader_of(folder)

    def read(reader: Any, positions: Any) -> Any:
        raise RuntimeError("pread() failed: Input/output error; reading train-00000")

    monkeypatch.setattr(readers.ArrayRecordReader, "read", read)
    with pytest.raises(RetryError, match=r"/train-0.*Input/output error"):
        take(reader, 1)


def test_spread_covers_all_shards(folder: Path) -> None:
    index = read_index(folder)
    split = index.splits["train"]
    shards = TokenShards(folder, split.shards, index.record)
    assert shards.spread(10**6).tolist() == list(range(split.rows))
    assert shards.spread(3).tolist() == [0, split.rows // 3, 2 * split.rows // 3]
    assert TokenShards(folder, (), index.record).spread(3).tolist() == []


def test_an_index_that_counts_too_many_sequences_names_the_shard(make_folder: MakeFolder) -> None:
    path = make_folder() / INDEX_FILE
    content = json.loads(path.read_text())
    content["splits"]["train"]["shards"][2]["rows"] += 1
    content["splits"]["train"]["rows"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"train-00002.*\b7 .*\b8"):
        take(reader_of(path.parent), 3)


def test_reading_prepared_data_needs_no_tensorflow() -> None:
    module = "tupe_jax.data.pretraining.readers"
    check = f"import sys, {module}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_shard_that_vanishes_is_named(make_folder: MakeFolder) -> None:
    folder = make_folder()
    reader = reader_of(folder)
    shard = folder / read_index(folder).splits["train"].shards[0].file
    shard.unlink()
    with pytest.raises(UserError, match=shard.name):
        take(reader, 3)


def test_the_order_is_the_same_with_every_release_of_grain(folder: Path) -> None:
    """A run resumed after an upgrade must not see other sequences."""
    reader = reader_of(folder)
    assert numbers_of(take(reader, 1)) == [1, 15, 20, 13, 11, 5, 22, 10]
    reader.restore({**reader.state(), "step": 1_000_000})
    assert numbers_of(take(reader, 1)) == [20, 14, 2, 12, 3, 10, 0, 11]

"""A prepared folder describes its content, and an incomplete one is refused by name."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupe_jax.data.pretraining.token_shards import (
    INDEX_FILE,
    TOKENIZER_FILE,
    PreparedIndex,
    Split,
    check_tokenizer_file,
    decode_records,
    dtype_name,
    encode_example,
    examples_of,
    read_index,
    record_type,
    require_tokenizer,
    shard_file_name,
    write_index,
    write_shard,
)
from tupe_jax.utils.errors import UserError

SEQUENCES, LENGTH = 7, 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokens = np.arange(SEQUENCES * LENGTH).reshape(SEQUENCES, LENGTH)
    record = record_type("stream", 100, LENGTH)
    shards = (
        write_shard(
            tmp_path / shard_file_name("train", 0, 2), examples_of({"tokens": tokens[:4]}), record
        ),
        write_shard(
            tmp_path / shard_file_name("train", 1, 2), examples_of({"tokens": tokens[4:]}), record
        ),
    )
    split = Split(shards=shards, rows=SEQUENCES, tokens=SEQUENCES * LENGTH, documents=3)
    write_index(tmp_path, PreparedIndex("toy", "ab" * 32, 100, LENGTH, 0, {"train": split}))
    return tmp_path


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1))
def test_a_sequence_round_trips_through_its_record(tokens: list[int]) -> None:
    record = record_type("stream", 2**16, len(tokens))
    encoded = encode_example({"tokens": tokens}, record)
    assert len(encoded) == 2 * len(tokens)
    assert decode_records([encoded], record)["tokens"].tolist() == [tokens]


def test_an_example_with_several_features_round_trips_through_its_record() -> None:
    example = {"tokens": [7, 8, 9], "segments": [0, 0, 1], "is_random_next": 1}
    record = record_type("pairs", 2**16, 3)
    encoded = encode_example(example, record)
    assert encoded == b"\x07\x00\x08\x00\x09\x00" + b"\x00\x00\x01" + b"\x01"
    decoded = decode_records([encoded, encoded], record)
    assert {name: values.tolist() for name, values in decoded.items()} == {
        "tokens": [[7, 8, 9]] * 2,
        "segments": [[0, 0, 1]] * 2,
        "is_random_next": [1, 1],
    }
    assert {values.dtype for values in decoded.values()} == {np.dtype(np.int32)}


def test_many_sequences_decode_to_one_int32_array() -> None:
    tokens = np.array([[1, 2, 70_000], [3, 4, 5]])
    record = record_type("stream", 2**16 + 1, 3)
    records = [encode_example({"tokens": ids}, record) for ids in tokens]
    decoded = decode_records(records, record)["tokens"]
    assert decoded.dtype == np.int32
    assert (decoded == tokens).all()


def test_records_are_little_endian() -> None:
    assert encode_example({"tokens": [258]}, record_type("stream", 1000, 1)) == b"\x02\x01"


@pytest.mark.parametrize("tokens", [[-1], [2**16]])
def test_an_id_that_does_not_fit_is_not_wrapped(tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="uint16"):
        encode_example({"tokens": tokens}, record_type("stream", 1000, 1))


def test_the_type_is_the_smallest_that_holds_the_vocabulary() -> None:
    assert (dtype_name(2**16), dtype_name(2**16 + 1)) == ("uint16", "uint32")


def test_the_index_reads_back_as_written(folder: Path) -> None:
    index = read_index(folder)
    assert (index.task, index.vocab_size, index.length, index.dtype) == (
        "toy",
        100,
        LENGTH,
        "uint16",
    )
    assert [shard.rows for shard in index.splits["train"].shards] == [4, 3]
    assert not list(folder.glob("*.tmp"))


def test_a_folder_without_index_is_unfinished(folder: Path) -> None:
    (folder / INDEX_FILE).unlink()
    with pytest.raises(UserError, match=r"index\.json.*tupe prepare"):
        read_index(folder)
    with pytest.raises(UserError, match="no such folder"):
        read_index(folder / "elsewhere")


def test_a_truncated_shard_is_named_with_both_sizes(folder: Path) -> None:
    shard = folder / shard_file_name("train", 1, 2)
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(UserError, match=f"{shard.name}: {size - 10} .*{size}"):
        read_index(folder)


@pytest.mark.parametrize("sizes", [True, False])
def test_a_missing_shard_is_named(folder: Path, sizes: bool) -> None:
    shard = folder / shard_file_name("train", 0, 2)
    shard.unlink()
    with pytest.raises(UserError, match=shard.name):
        read_index(folder, sizes=sizes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "format 3"),
        ({"format": 2}, "format 2"),
        ({"dtype": "uint32"}, "uint32.* 100 .*uint16"),
        ({"splits": 3}, INDEX_FILE),
    ],
)
def test_an_invalid_index_is_refused(folder: Path, change: dict[str, object], message: str) -> None:
    path = folder / INDEX_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message):
        read_index(folder)


def test_counts_that_disagree_are_both_named(folder: Path) -> None:
    path = folder / INDEX_FILE
    content = json.loads(path.read_text())
    content["splits"]["train"]["rows"] = 8
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"\b8 .*\b7"):
        read_index(folder)


@pytest.mark.parametrize("text", ["", '{"format": 1}', "[]"])
def test_a_broken_index_is_named(folder: Path, text: str) -> None:
    (folder / INDEX_FILE).write_text(text)
    with pytest.raises(UserError, match=INDEX_FILE):
        read_index(folder)


def test_an_index_of_an_older_version_is_read(folder: Path) -> None:
    """Such an index has neither a tokenizer nor a packing."""
    path = folder / INDEX_FILE
    content = json.loads(path.read_text())
    del content["tokenizer"], content["packing"]
    path.write_text(json.dumps(content))
    index = read_index(folder)
    assert (index.tokenizer, index.packing) == (None, "stream")
    check_tokenizer_file(folder, index)


def test_a_packing_of_a_newer_version_is_refused(folder: Path) -> None:
    path = folder / INDEX_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"packing": "origami"}))
    with pytest.raises(UserError, match="packing 'origami'"):
        read_index(folder)


def test_a_tokenizer_that_is_missing_or_another_is_named(folder: Path) -> None:
    sha256 = hashlib.sha256(b"the tokenizer").hexdigest()
    index = replace(read_index(folder), tokenizer=TOKENIZER_FILE, vocabulary_sha256=sha256)
    path = folder / TOKENIZER_FILE
    with pytest.raises(UserError, match=TOKENIZER_FILE):
        check_tokenizer_file(folder, index)
    path.write_bytes(b"another")
    with pytest.raises(UserError, match=f"{TOKENIZER_FILE}.*{sha256[:12]}"):
        check_tokenizer_file(folder, index)
    path.write_bytes(b"the tokenizer")
    check_tokenizer_file(folder, index)


def test_another_tokenizer_is_refused(folder: Path) -> None:
    index = read_index(folder)
    require_tokenizer(folder, index, "ab" * 32)
    with pytest.raises(UserError, match=r"abababababab.*cdcdcdcdcdcd"):
        require_tokenizer(folder, index, "cd" * 32)


def test_a_failing_source_leaves_no_shard(tmp_path: Path) -> None:
    path = tmp_path / shard_file_name("train", 0, 1)
    with pytest.raises(ValueError, match="do not fit"):
        write_shard(path, [{"tokens": [1]}, {"tokens": [-1]}], record_type("stream", 1000, 1))
    assert not path.exists()

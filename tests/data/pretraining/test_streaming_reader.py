"""The live reader: the same promises as the prepared one, from a tf.data pipeline."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tupe_jax.config.schema import Packing
from tupe_jax.data.pretraining.graph import elements
from tupe_jax.data.pretraining.readers import Share, State
from tupe_jax.data.pretraining.seqio_tasks import Component, make_task_or_mixture
from tupe_jax.data.pretraining.sources import DocumentSource, parse_source
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.pretraining.streaming_reader import StreamingReader, rows_of_task, take_by_size
from tupe_jax.data.tensorflow_on_cpu import tf
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece
from tupe_jax.utils.errors import UserError

ROWS, LENGTH, BATCH = 23, 4, 8


def shuffled_rows(seed: int) -> tf.data.Dataset:
    rows = tf.data.Dataset.range(ROWS).shuffle(10, seed=seed)
    return rows.map(
        lambda row: {"tokens": tf.cast(row * LENGTH + tf.range(LENGTH, dtype=tf.int64), tf.int32)},
        num_parallel_calls=2,
    )


def reader_of(share: Share = Share(), **changes: Any) -> StreamingReader:  # noqa: B008
    settings: dict[str, Any] = {
        "rows_of_epoch": shuffled_rows,
        "task": "toy",
        "vocabulary_sha256": "ab" * 32,
        "length": LENGTH,
        "batch_size": BATCH,
        "seed": 5,
    }
    return StreamingReader(share=share, **(settings | changes))


def take(reader: StreamingReader, steps: int) -> NDArray[np.int32]:
    return np.concatenate([reader.next()["tokens"] for _ in range(steps)])


def test_every_row_comes_once_per_epoch_and_epochs_differ_in_order() -> None:
    tokens = take(reader_of(), ROWS)
    assert tokens.dtype == np.int32
    numbers = (tokens[:, 0] // LENGTH).tolist()
    epochs = [numbers[start : start + ROWS] for start in range(0, len(numbers), ROWS)]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == BATCH


@pytest.fixture(scope="module")
def uninterrupted() -> list[tuple[State, NDArray[np.int32]]]:
    """Return the state before each batch, as it comes back from JSON, and the batch."""
    reader = reader_of()
    return [(json.loads(json.dumps(reader.state())), reader.next()["tokens"]) for _ in range(30)]


@given(step=st.integers(0, 25))
@settings(max_examples=10, deadline=None)
def test_restoring_at_any_step_gives_the_same_batches(
    uninterrupted: list[tuple[State, NDArray[np.int32]]], step: int
) -> None:
    reader = reader_of()
    reader.next()
    reader.restore(uninterrupted[step][0])
    for state, tokens in uninterrupted[step : step + 5]:
        assert reader.state() == state
        assert (reader.next()["tokens"] == tokens).all()


def test_processes_share_the_global_batch_and_the_state() -> None:
    alone = reader_of()
    shares = [Share((0, 3), 4), Share((1, 2), 4)]
    pair = [reader_of(share) for share in shares]
    for _ in range(4):
        batch = alone.next()["tokens"]
        for share, reader in zip(shares, pair, strict=True):
            assert (reader.next()["tokens"] == batch[share.rows(len(batch))]).all()
    assert pair[0].state() == pair[1].state() == alone.state()


def test_restoring_runs_at_most_one_epoch() -> None:
    built: list[int] = []

    def counted_rows(seed: int) -> tf.data.Dataset:
        built.append(seed)
        return shuffled_rows(seed)

    reader = reader_of(rows_of_epoch=counted_rows)
    state = {**reader.state(), "step": 1000, "epoch": 347, "rows_taken": 19}
    built.clear()
    reader.restore(state)
    reader.next()
    assert len(built) == 2  # epoch 347, whose last 4 rows were left, and epoch 348


@pytest.mark.parametrize(
    "change", [{"seed": 6}, {"batch_size": 4}, {"task": "other"}, {"vocabulary_sha256": "cd"}]
)
def test_the_state_of_another_stream_is_refused(change: dict[str, Any]) -> None:
    ((name, value),) = change.items()
    with pytest.raises(UserError, match=f"{name} .*, but this run has {value!r}"):
        reader_of(**change).restore(reader_of().state())


def test_a_pipeline_without_rows_is_an_error_not_a_hang() -> None:
    empty = reader_of(rows_of_epoch=lambda seed: shuffled_rows(seed).take(0))
    with pytest.raises(UserError, match="toy: epoch 0 has no rows"):
        empty.next()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[DocumentSource]:
    folder = tmp_path_factory.mktemp("text")
    for name in ("left", "right"):
        lines = [f"the {name} hand washed {n} cups .\n\n" for n in range(400)]
        (folder / f"{name}.txt").write_text("".join(lines))
    return [parse_source(f"text:{folder / name}.txt") for name in ("left", "right")]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    path.write_bytes(train_sentencepiece(["the left right hand washed 0123456789 cups"], size=70))
    return SentencePieceTokenizer.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["stream", "sentences"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_seqio_task_or_mixture_resumes_exactly(
    texts: list[DocumentSource], vocabulary: SentencePieceTokenizer, count: int, packing: Packing
) -> None:
    components = [Component(1.0, source) for source in texts[:count]]
    task = make_task_or_mixture(components, vocabulary, packing=packing)
    rows = rows_of_task(task, "train", length=16)
    changes = {"rows_of_epoch": rows, "task": task.name, "length": 16, "batch_size": 64}
    uninterrupted = reader_of(**changes)
    states_and_batches = [(uninterrupted.state(), take(uninterrupted, 1)) for _ in range(16)]
    assert (uninterrupted.state()["epoch"] > 0) == (count == 1)
    resumed = reader_of(**changes)
    resumed.restore(states_and_batches[5][0])
    for _, batch in states_and_batches[5:]:
        assert (take(resumed, 1) == batch).all()


def test_a_mixture_does_not_end_at_a_source_without_rows(
    texts: list[DocumentSource], vocabulary: SentencePieceTokenizer, tmp_path: Path
) -> None:
    held_out = (text for n in range(2000) if is_held_out(text := f"cup {n}"))
    (tmp_path / "held_out.txt").write_text("\n\n".join(held_out))
    without_training_rows = parse_source(f"text:{tmp_path}/held_out.txt")
    components = [Component(1.0, texts[0]), Component(100.0, without_training_rows)]
    mixture = make_task_or_mixture(components, vocabulary)
    rows = rows_of_task(mixture, "train", length=16)(0).take(500)
    assert len(list(elements(rows))) == 500


@given(
    numbers=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 100), min_size=5, max_size=5),
    count=st.integers(0, 80),
)
def test_items_are_taken_once_and_others_replace_what_a_source_lacks(
    numbers: list[int], sizes: list[int], count: int
) -> None:
    items = [[(source, n) for n in range(number)] for source, number in enumerate(numbers)]
    taken = take_by_size([iter(each) for each in items], sizes[: len(items)], count)
    assert len(taken) == min(count, sum(numbers))
    for source, each in enumerate(items):
        found = [item for item in taken if item[0] == source]
        assert found == each[: len(found)]


def test_items_are_taken_by_size() -> None:
    taken = take_by_size([iter("a" * 99), iter("b" * 99), iter("c")], [30, 10, 40], 16)
    # Each gives 6, 2 and 8; c has one only, so a and b share the other 7.
    assert [taken.count(source) for source in "abc"] == [11, 4, 1]


def test_broken_text_is_told_by_file_and_line(
    tmp_path: Path, vocabulary: SentencePieceTokenizer
) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good\n\n\xff\n")
    task = make_task_or_mixture(
        [Component(1.0, parse_source(f"text:{tmp_path}/bad.txt"))], vocabulary
    )
    reader = reader_of(rows_of_epoch=rows_of_task(task, "train", length=16), length=16)
    with pytest.raises(UserError, match=r"bad\.txt, line 3: byte 0xff is not UTF-8"):
        reader.next()

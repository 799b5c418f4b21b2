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
from tupe_jax.data.pretraining.readers import HostShard, State
from tupe_jax.data.pretraining.seqio_tasks import Component, make_task_or_mixture
from tupe_jax.data.pretraining.sources import DocumentSource, parse_source
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.pretraining.streaming_reader import StreamingReader, epochs_of_task, take_by_size
from tupe_jax.data.tf_utils import call, elements, tf
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece
from tupe_jax.utils.errors import UserError

SEQUENCES, LENGTH, BATCH = 23, 4, 8


def shuffled_sequences(seed: int) -> tf.data.Dataset:
    numbers = tf.data.Dataset.range(SEQUENCES).shuffle(10, seed=seed)
    return numbers.map(
        lambda n: {"tokens": tf.cast(n * LENGTH + tf.range(LENGTH, dtype=tf.int64), tf.int32)},
        num_parallel_calls=2,
    )


def reader_of(host_shard: HostShard = HostShard(), **changes: Any) -> StreamingReader:  # noqa: B008
    settings: dict[str, Any] = {
        "epoch_fn": shuffled_sequences,
        "task": "toy",
        "vocabulary_sha256": "ab" * 32,
        "length": LENGTH,
        "batch_size": BATCH,
        "seed": 5,
    }
    return StreamingReader(host_shard=host_shard, **(settings | changes))


def take(reader: StreamingReader, steps: int) -> NDArray[np.int32]:
    return np.concatenate([reader.next()["tokens"] for _ in range(steps)])


def test_every_sequence_comes_once_per_epoch_and_epochs_differ_in_order() -> None:
    tokens = take(reader_of(), SEQUENCES)
    assert tokens.dtype == np.int32
    numbers = (tokens[:, 0] // LENGTH).tolist()
    epochs = [numbers[start : start + SEQUENCES] for start in range(0, len(numbers), SEQUENCES)]
    assert all(sorted(epoch) == list(range(SEQUENCES)) for epoch in epochs)
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
    host_shards = [HostShard((0, 3), 4), HostShard((1, 2), 4)]
    pair = [reader_of(host_shard) for host_shard in host_shards]
    for _ in range(4):
        batch = alone.next()["tokens"]
        for host_shard, reader in zip(host_shards, pair, strict=True):
            assert (reader.next()["tokens"] == batch[host_shard.indices(len(batch))]).all()
    assert pair[0].state() == pair[1].state() == alone.state()


def test_restoring_runs_at_most_one_epoch() -> None:
    built: list[int] = []

    def counted_sequences(seed: int) -> tf.data.Dataset:
        built.append(seed)
        return shuffled_sequences(seed)

    reader = reader_of(epoch_fn=counted_sequences)
    state = {**reader.state(), "step": 1000, "epoch": 347, "rows_taken": 19}
    built.clear()
    reader.restore(state)
    assert len(built) == 1  # epoch 347
    reader.next()
    assert len(built) == 2  # and epoch 348, since only 4 sequences were left


def test_restoring_skips_what_was_taken_before_the_next_batch_is_read() -> None:
    made = []

    def noted(tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        made.append(tokens)
        return tokens

    def noted_sequences(seed: int) -> tf.data.Dataset:
        return shuffled_sequences(seed).map(
            lambda example: {"tokens": call(noted, [example["tokens"]], tf.int32)}
        )

    reader = reader_of(epoch_fn=noted_sequences)
    reader.restore({**reader.state(), "step": 2, "rows_taken": 2 * BATCH})
    assert len(made) > 2 * BATCH


@pytest.mark.parametrize(
    "change", [{"seed": 6}, {"batch_size": 4}, {"task": "other"}, {"vocabulary_sha256": "cd"}]
)
def test_the_state_of_another_stream_is_refused(change: dict[str, Any]) -> None:
    ((name, value),) = change.items()
    with pytest.raises(UserError, match=f"{name} .*{value!r}"):
        reader_of(**change).restore(reader_of().state())


def test_a_pipeline_without_sequences_is_an_error_not_a_hang() -> None:
    empty = reader_of(epoch_fn=lambda seed: shuffled_sequences(seed).take(0))
    with pytest.raises(UserError, match=r"toy: .*0"):
        empty.next()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[DocumentSource]:
    folder = tmp_path_factory.mktemp("text")
    for name in ("left", "right"):
        lines = [f"the {name} hand washed {n} cups .\n\n" for n in range(400)]
        (folder / f"{name}.txt").write_text("".join(lines))
    return [parse_source(f"text:{folder / name}.txt") for name in ("left", "right")]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    path.write_bytes(train_sentencepiece(["the left right hand washed 0123456789 cups"], size=70))
    return SentencePieceTokenizer.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["stream", "sentences"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_seqio_task_or_mixture_resumes_exactly(
    texts: list[DocumentSource], tokenizer: SentencePieceTokenizer, count: int, packing: Packing
) -> None:
    components = [Component(1.0, source) for source in texts[:count]]
    task = make_task_or_mixture(components, tokenizer, packing=packing)
    epoch_fn = epochs_of_task(task, "train", length=16)
    changes = {"epoch_fn": epoch_fn, "task": task.name, "length": 16, "batch_size": 64}
    uninterrupted = reader_of(**changes)
    states_and_batches = [(uninterrupted.state(), take(uninterrupted, 1)) for _ in range(16)]
    assert (uninterrupted.state()["epoch"] > 0) == (count == 1)
    resumed = reader_of(**changes)
    resumed.restore(states_and_batches[5][0])
    for _, batch in states_and_batches[5:]:
        assert (take(resumed, 1) == batch).all()


@pytest.mark.slow
def test_a_mixture_does_not_end_at_an_empty_source(
    texts: list[DocumentSource], tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    held_out = (text for n in range(2000) if is_held_out(text := f"cup {n}"))
    (tmp_path / "held_out.txt").write_text("\n\n".join(held_out))
    empty = parse_source(f"text:{tmp_path}/held_out.txt")
    components = [Component(1.0, texts[0]), Component(100.0, empty)]
    mixture = make_task_or_mixture(components, tokenizer)
    sequences = epochs_of_task(mixture, "train", length=16)(0).take(500)
    assert len(list(elements(sequences))) == 500


@given(
    numbers=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 100), min_size=5, max_size=5),
    count=st.integers(0, 80),
)
def test_items_are_taken_once_and_others_fill_in_for_a_short_source(
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


def test_broken_text_is_an_error_with_file_and_line(
    tmp_path: Path, tokenizer: SentencePieceTokenizer
) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good\n\n\xff\n")
    task = make_task_or_mixture(
        [Component(1.0, parse_source(f"text:{tmp_path}/bad.txt"))], tokenizer
    )
    reader = reader_of(epoch_fn=epochs_of_task(task, "train", length=16), length=16)
    with pytest.raises(UserError, match=r"bad\.txt, line 3: .*0xff"):
        reader.next()

"""SeqIO tasks: documents become rows, by SeqIO's own means."""

from pathlib import Path

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.data.small_corpus import documents
from tupe_jax.data.pretraining.cleaning import (
    CLEANING_STEPS,
    merge_short_lines,
    normalise_punctuation,
)
from tupe_jax.data.pretraining.graph import elements
from tupe_jax.data.pretraining.seqio_tasks import (
    RowConverter,
    make_task,
    make_task_or_mixture,
    parse_task,
)
from tupe_jax.data.pretraining.sources import TextFiles
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SEP_ID, SentencePieceTokenizer
from tupe_jax.utils.errors import UserError


@pytest.fixture
def source(tmp_path: Path) -> TextFiles:
    (tmp_path / "a.txt").write_text("\n\n".join(documents(400)))
    return TextFiles(f"{tmp_path}/a.txt", block_bytes=5_000)


def rows(task: seqio.Task, length: int, split: str = "train") -> np.ndarray:
    dataset = task.get_dataset({"tokens": length}, split, shuffle=False).batch(512)
    return np.concatenate([batch["tokens"] for batch in elements(dataset)])


def expected_rows(texts: list[str], vocabulary: SentencePieceTokenizer, length: int) -> np.ndarray:
    """Pack in plain Python: every line and [SEP], cut into rows after [CLS]."""
    stream = [
        token
        for text in texts
        for line in text.split("\n")
        for token in [*vocabulary.encode(line), SEP_ID]
    ]
    body = length - 1
    stream += [PAD_ID] * (-len(stream) % body)
    return np.array([[CLS_ID, *stream[i : i + body]] for i in range(0, len(stream), body)])


@pytest.mark.parametrize("length", [5, 128])
def test_rows_are_cls_and_the_stream_of_all_lines_each_with_sep(
    source: TextFiles, vocabulary: SentencePieceTokenizer, length: int
) -> None:
    texts = documents(400)
    for split, wanted in (("train", False), ("validation", True)):
        split_texts = [text for text in texts if is_held_out(text) == wanted]
        packed = rows(make_task(source, vocabulary), length, split)
        np.testing.assert_array_equal(packed, expected_rows(split_texts, vocabulary, length))


def test_rows_tell_how_many_documents_begin_in_them(
    source: TextFiles, vocabulary: SentencePieceTokenizer
) -> None:
    task = make_task(source, vocabulary)
    dataset = task.get_dataset({"tokens": 32}, "train", shuffle=False)
    begins = sum(example["documents"] for example in elements(dataset))
    assert begins == sum(not is_held_out(text) for text in documents(400))


def test_cleaning_steps_run_before_tokenisation(
    tmp_path: Path, vocabulary: SentencePieceTokenizer
) -> None:
    texts = [f"\u201cHeading\u201d {n}\n{text}" for n, text in enumerate(documents(100))]
    (tmp_path / "b.txt").write_text("\n\n".join([*texts, *texts]))
    source = TextFiles(f"{tmp_path}/b.txt")
    cleaned = [
        merge_short_lines(normalise_punctuation(text)) for text in texts if not is_held_out(text)
    ]
    packed = rows(make_task(source, vocabulary, CLEANING_STEPS), 64)
    np.testing.assert_array_equal(packed, expected_rows(cleaned, vocabulary, 64))
    assert len(rows(make_task(source, vocabulary), 64)) > 2 * len(packed)


def test_tokenisation_is_that_of_the_seqio_vocabulary(
    source: TextFiles, vocabulary: SentencePieceTokenizer
) -> None:
    feature = make_task(source, vocabulary).output_features["tokens"]
    line = documents(1)[0].split("\n")[0]
    assert list(feature.vocabulary.encode_tf(line).numpy()) == vocabulary.encode(line)
    assert feature.vocabulary.vocab_size == vocabulary.size


def test_an_iterator_can_be_saved_and_restored_with_all_cleaning(
    tmp_path: Path, source: TextFiles, vocabulary: SentencePieceTokenizer
) -> None:
    task = make_task(source, vocabulary, CLEANING_STEPS)
    dataset = task.get_dataset({"tokens": 64}, "train", shuffle=True, seed=3)
    iterator = iter(dataset)
    for _ in range(50):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "state"))
    rest = [example["tokens"].numpy() for example in iterator]
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).restore(saved)
    np.testing.assert_array_equal([example["tokens"].numpy() for example in restored], rest)


def test_what_is_before_the_cache_does_not_depend_on_the_row_length(
    source: TextFiles, vocabulary: SentencePieceTokenizer
) -> None:
    """SeqIO's Beam pipeline runs exactly this for each shard, and stores what comes out."""
    task = make_task(source, vocabulary)
    assert task.supports_caching
    shards = len(source.list_shards("train"))
    examples = [
        example["tokens"]
        for index in range(shards)
        for example in elements(
            task.preprocess_precache(
                source.get_dataset("train", shard_info=seqio.ShardInfo(index, shards))
            )
        )
    ]
    assert len(examples) == sum(not is_held_out(text) for text in documents(400))
    cached = tf.data.Dataset.from_generator(
        lambda: ({"tokens": example} for example in examples),
        output_signature={"tokens": tf.TensorSpec([None], tf.int32)},
    )
    packed = [e["tokens"] for e in elements(task.preprocess_postcache(cached, {"tokens": 64}))]
    np.testing.assert_array_equal(packed, rows(task, 64))


def test_the_converter_gives_the_model_whole_rows(
    source: TextFiles, vocabulary: SentencePieceTokenizer
) -> None:
    task = make_task(source, vocabulary)
    dataset = seqio.get_dataset(
        task.name,
        task_feature_lengths={"tokens": 64},
        dataset_split="train",
        shuffle=False,
        feature_converter=RowConverter(),
    )
    converted = list(elements(dataset))
    assert set(converted[0]) == {"tokens"}
    np.testing.assert_array_equal([example["tokens"] for example in converted], rows(task, 64))


def test_the_same_task_has_the_same_name_and_another_one_another(
    source: TextFiles, vocabulary: SentencePieceTokenizer
) -> None:
    task = make_task(source, vocabulary)
    assert make_task(source, vocabulary) is task
    assert make_task(source, vocabulary, CLEANING_STEPS).name != task.name
    assert make_task(source, vocabulary, share=0.5).name != task.name


def test_weights_say_how_often_the_sources_of_a_mixture_are_passed(
    tmp_path: Path, vocabulary: SentencePieceTokenizer
) -> None:
    (tmp_path / "large.txt").write_text("\n\n".join(documents(800, seed=1)))
    (tmp_path / "small.txt").write_text("\n\n".join(documents(200, seed=2)))
    components = parse_task(f"text:{tmp_path}/large.txt + 2 * text:{tmp_path}/small.txt")
    mixture = make_task_or_mixture(components, vocabulary)
    assert isinstance(mixture, seqio.Mixture)
    of_large = {row.tobytes() for row in rows(make_task(components[0].source, vocabulary), 32)}
    dataset = mixture.get_dataset({"tokens": 32}, "train", shuffle=False).take(1500)
    drawn = [example["tokens"].tobytes() in of_large for example in elements(dataset)]
    assert 0.63 < np.mean(drawn) < 0.71  # 800 to 2 * 200


def test_tasks_made_with_copies_of_a_vocabulary_can_be_mixed(
    tmp_path: Path, vocabulary: SentencePieceTokenizer
) -> None:
    (tmp_path / "copy.model").write_bytes(vocabulary.path.read_bytes())
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents(50)))
    components = parse_task(f"text:{tmp_path}/a.txt + text:{tmp_path}/b.txt")
    make_task(components[0].source, SentencePieceTokenizer.load(tmp_path / "copy.model"))
    mixture = make_task_or_mixture(components, vocabulary)
    dataset = mixture.get_dataset({"tokens": 32}, "train", shuffle=False).take(5)
    assert len(list(elements(dataset))) == 5


def test_a_task_of_one_source_is_no_mixture(
    source: TextFiles, vocabulary: SentencePieceTokenizer
) -> None:
    task = make_task_or_mixture(parse_task(source.spec), vocabulary)
    assert isinstance(task, seqio.Task)


@pytest.mark.parametrize("weight", ["0", "-1", "two", "inf", "nan"])
def test_a_weight_that_is_no_positive_number_is_an_error(source: TextFiles, weight: str) -> None:
    with pytest.raises(UserError, match=f"'{weight}' is not a positive number"):
        parse_task(f"{weight} * {source.spec}")

"""SeqIO tasks: from documents to sequences, with SeqIO's own functions."""

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
from tupe_jax.data.pretraining.seqio_tasks import (
    SequenceConverter,
    make_task,
    make_task_or_mixture,
    parse_task,
)
from tupe_jax.data.pretraining.sources.text_files import TextFiles
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.tf_utils import elements
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SEP_ID, SentencePieceTokenizer
from tupe_jax.utils.errors import UserError


@pytest.fixture
def source(tmp_path: Path) -> TextFiles:
    (tmp_path / "a.txt").write_text("\n\n".join(documents(400)))
    return TextFiles(f"{tmp_path}/a.txt", block_bytes=5_000)


def sequences(task: seqio.Task, length: int, split: str = "train") -> np.ndarray:
    dataset = task.get_dataset({"tokens": length}, split, shuffle=False).batch(512)
    return np.concatenate([batch["tokens"] for batch in elements(dataset)])


def expected_sequences(
    texts: list[str], tokenizer: SentencePieceTokenizer, length: int
) -> np.ndarray:
    """Pack in plain Python: every line and [SEP], cut into sequences after [CLS]."""
    stream = [
        token
        for text in texts
        for line in text.split("\n")
        for token in [*tokenizer.encode(line), SEP_ID]
    ]
    body = length - 1
    stream += [PAD_ID] * (-len(stream) % body)
    return np.array([[CLS_ID, *stream[i : i + body]] for i in range(0, len(stream), body)])


@pytest.mark.parametrize("length", [5, 128])
def test_sequences_are_cls_and_the_stream_of_all_lines_each_with_sep(
    source: TextFiles, tokenizer: SentencePieceTokenizer, length: int
) -> None:
    texts = documents(400)
    for split, wanted in (("train", False), ("validation", True)):
        split_texts = [text for text in texts if is_held_out(text) == wanted]
        packed = sequences(make_task(source, tokenizer), length, split)
        np.testing.assert_array_equal(packed, expected_sequences(split_texts, tokenizer, length))


def test_sequences_count_the_documents_that_begin_in_them(
    source: TextFiles, tokenizer: SentencePieceTokenizer
) -> None:
    task = make_task(source, tokenizer)
    dataset = task.get_dataset({"tokens": 32}, "train", shuffle=False)
    begins = sum(example["documents"] for example in elements(dataset))
    assert begins == sum(not is_held_out(text) for text in documents(400))


def test_cleaning_steps_run_before_tokenisation(
    tmp_path: Path, tokenizer: SentencePieceTokenizer
) -> None:
    texts = [f"\u201cHeading\u201d {n}\n{text}" for n, text in enumerate(documents(100))]
    (tmp_path / "b.txt").write_text("\n\n".join([*texts, *texts]))
    source = TextFiles(f"{tmp_path}/b.txt")
    cleaned = [
        merge_short_lines(normalise_punctuation(text)) for text in texts if not is_held_out(text)
    ]
    packed = sequences(make_task(source, tokenizer, CLEANING_STEPS), 64)
    np.testing.assert_array_equal(packed, expected_sequences(cleaned, tokenizer, 64))
    assert len(sequences(make_task(source, tokenizer), 64)) > 2 * len(packed)


def test_tokenisation_is_that_of_the_seqio_vocabulary(
    source: TextFiles, tokenizer: SentencePieceTokenizer
) -> None:
    feature = make_task(source, tokenizer).output_features["tokens"]
    line = documents(1)[0].split("\n")[0]
    assert list(feature.vocabulary.encode_tf(line).numpy()) == tokenizer.encode(line)
    assert feature.vocabulary.vocab_size == tokenizer.size


def test_an_iterator_can_be_saved_and_restored_with_all_cleaning(
    tmp_path: Path, source: TextFiles, tokenizer: SentencePieceTokenizer
) -> None:
    task = make_task(source, tokenizer, CLEANING_STEPS)
    dataset = task.get_dataset({"tokens": 64}, "train", shuffle=True, seed=3)
    iterator = iter(dataset)
    for _ in range(50):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "state"))
    rest = [example["tokens"].numpy() for example in iterator]
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).restore(saved)
    np.testing.assert_array_equal([example["tokens"].numpy() for example in restored], rest)


def test_the_converter_keeps_the_sequences(
    source: TextFiles, tokenizer: SentencePieceTokenizer
) -> None:
    task = make_task(source, tokenizer)
    dataset = seqio.get_dataset(
        task.name,
        task_feature_lengths={"tokens": 64},
        dataset_split="train",
        shuffle=False,
        feature_converter=SequenceConverter(),
    )
    converted = list(elements(dataset))
    assert set(converted[0]) == {"tokens"}
    np.testing.assert_array_equal([example["tokens"] for example in converted], sequences(task, 64))


def test_the_same_task_has_the_same_name_and_another_one_another(
    source: TextFiles, tokenizer: SentencePieceTokenizer
) -> None:
    task = make_task(source, tokenizer)
    assert make_task(source, tokenizer) is task
    assert make_task(source, tokenizer, CLEANING_STEPS).name != task.name
    assert make_task(source, tokenizer, share=0.5).name != task.name


def test_weights_are_passes_over_the_sources_of_a_mixture(
    tmp_path: Path, tokenizer: SentencePieceTokenizer
) -> None:
    (tmp_path / "large.txt").write_text("\n\n".join(documents(800, seed=1)))
    (tmp_path / "small.txt").write_text("\n\n".join(documents(200, seed=2)))
    components = parse_task(f"text:{tmp_path}/large.txt + 2 * text:{tmp_path}/small.txt")
    mixture = make_task_or_mixture(components, tokenizer)
    assert isinstance(mixture, seqio.Mixture)
    of_large = {ids.tobytes() for ids in sequences(make_task(components[0].source, tokenizer), 32)}
    dataset = mixture.get_dataset({"tokens": 32}, "train", shuffle=False).take(1500)
    drawn = [example["tokens"].tobytes() in of_large for example in elements(dataset)]
    assert 0.63 < np.mean(drawn) < 0.71  # 800 to 2 * 200


def test_tasks_with_copies_of_a_tokenizer_can_be_mixed(
    tmp_path: Path, tokenizer: SentencePieceTokenizer
) -> None:
    (tmp_path / "copy.model").write_bytes(tokenizer.path.read_bytes())
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents(50)))
    components = parse_task(f"text:{tmp_path}/a.txt + text:{tmp_path}/b.txt")
    make_task(components[0].source, SentencePieceTokenizer.load(tmp_path / "copy.model"))
    mixture = make_task_or_mixture(components, tokenizer)
    dataset = mixture.get_dataset({"tokens": 32}, "train", shuffle=False).take(5)
    assert len(list(elements(dataset))) == 5


def test_a_task_of_one_source_is_no_mixture(
    source: TextFiles, tokenizer: SentencePieceTokenizer
) -> None:
    task = make_task_or_mixture(parse_task(source.spec), tokenizer)
    assert isinstance(task, seqio.Task)


@pytest.mark.parametrize("weight", ["0", "-1", "two", "inf", "nan"])
def test_a_weight_that_is_no_positive_number_is_an_error(source: TextFiles, weight: str) -> None:
    with pytest.raises(UserError, match=f"'{weight}'"):
        parse_task(f"{weight} * {source.spec}")

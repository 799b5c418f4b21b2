"""Packing whole lines: the plain rule, whatever the parts in which the stream arrives."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.small_corpus import documents
from tupe_jax.data.pretraining import packing
from tupe_jax.data.pretraining.seqio_tasks import make_task
from tupe_jax.data.pretraining.sources.text_files import TextFiles
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.tf_utils import elements
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SEP_ID, SentencePieceTokenizer

Line = list[int]


def plainly_packed(lines: list[Line], length: int) -> list[Line]:
    """[CLS] and as many whole lines as fit, in order; a line that is too long counts as several."""
    body = length - 1
    chunks = [line[i : i + body] for line in lines for i in range(0, len(line), body)]
    sequences: list[Line] = []
    for chunk in chunks:
        if not sequences or len(sequences[-1]) + len(chunk) > length:
            sequences.append([CLS_ID])
        sequences[-1] += chunk
    return [each + [PAD_ID] * (length - len(each)) for each in sequences]


def packed(texts: list[list[Line]], length: int) -> tuple[np.ndarray, int]:
    """The sequences of documents of lines, and how many documents begin in them."""
    ids = [list(chain.from_iterable(lines)) for lines in texts]
    dataset = tf.data.Dataset.from_generator(
        lambda: ({"tokens": each} for each in ids),
        output_signature={"tokens": tf.TensorSpec([None], tf.int32)},
    )
    found = list(elements(packing.pack_sentences(dataset, {"tokens": length})))
    tokens = np.array([each["tokens"] for each in found], np.int32).reshape(-1, length)
    return tokens, sum(int(each["documents"]) for each in found)


def numbered(sizes: list[list[int]]) -> list[list[Line]]:
    """Documents of lines of so many tokens, all different, and [SEP]."""
    numbers = iter(range(10, 1_000_000))
    return [[[next(numbers) for _ in range(size)] + [SEP_ID] for size in doc] for doc in sizes]


@pytest.mark.slow
@given(
    sizes=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=8), max_size=12),
    length=st.integers(2, 24),
    sequences_at_once=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_sequences_follow_the_plain_rule(
    sizes: list[list[int]], length: int, sequences_at_once: int
) -> None:
    texts = numbered(sizes)
    lines = [line for text in texts for line in text]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_SEQUENCES_AT_ONCE", sequences_at_once)
        tokens, begun = packed(texts, length)
    assert tokens.tolist() == plainly_packed(lines, length)
    assert begun == len(texts)
    body = tokens[:, 1:]
    assert body[body != PAD_ID].tolist() == list(chain.from_iterable(lines))


def test_a_full_sequence_has_no_padding_and_a_line_is_never_split() -> None:
    tokens, _ = packed(numbered([[2, 2], [3, 1, 1], [7]]), length=7)
    assert tokens.tolist() == [
        [CLS_ID, 10, 11, SEP_ID, 12, 13, SEP_ID],
        [CLS_ID, 14, 15, 16, SEP_ID, 17, SEP_ID],
        [CLS_ID, 18, SEP_ID, PAD_ID, PAD_ID, PAD_ID, PAD_ID],
        [CLS_ID, 19, 20, 21, 22, 23, 24],  # too long for a sequence of its own
        [CLS_ID, 25, SEP_ID, PAD_ID, PAD_ID, PAD_ID, PAD_ID],
    ]


def test_about_half_a_line_per_sequence_is_padding() -> None:
    generator = np.random.default_rng(0)
    sizes = [generator.integers(9, 50, size=10).tolist() for _ in range(400)]
    tokens, _ = packed(numbered(sizes), length=512)
    padding = np.count_nonzero(tokens == PAD_ID) / tokens.size
    assert 0.5 < padding * 512 / 15 < 1.5  # a line has 30 tokens on average


@pytest.mark.parametrize("length", [5, 64])
def test_a_task_packs_the_sentences_of_text(
    tmp_path: Path, tokenizer: SentencePieceTokenizer, length: int
) -> None:
    texts = documents(400)
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    source = TextFiles(f"{tmp_path}/a.txt", block_bytes=5_000)
    task = make_task(source, tokenizer, packing="sentences")
    for split in ("train", "validation"):
        lines = [
            [*tokenizer.encode(line), SEP_ID]
            for text in texts
            if is_held_out(text) == (split == "validation")
            for line in text.split("\n")
        ]
        dataset = task.get_dataset({"tokens": length}, split, shuffle=False).batch(512)
        tokens = np.concatenate([batch["tokens"] for batch in elements(dataset)])
        assert tokens.tolist() == plainly_packed(lines, length)


def test_the_task_name_depends_on_the_packing_unless_it_is_the_default(
    tmp_path: Path, tokenizer: SentencePieceTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints of the streaming reader know tasks by their names."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a line")
    source, cleaning = TextFiles("a.txt"), ("drop_repeated_lines",)
    named = replace(tokenizer, sha256="0" * 64)
    before_there_was_a_choice = "text_a_txt_4055d39046d0"
    assert make_task(source, named, cleaning).name == before_there_was_a_choice
    packed = make_task(source, named, cleaning, packing="sentences")
    assert packed.name == f"{before_there_was_a_choice}_sentences"

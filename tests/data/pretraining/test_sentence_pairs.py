"""Sentence pairs follow BERT's rules and are the same for any number of workers."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.data.pretraining.prepared_folder import read_examples
from tests.data.small_corpus import documents
from tupe_jax.cli import main
from tupe_jax.data.builtin.random_stream import stream
from tupe_jax.data.pretraining import sentence_pairs
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.prepare import prepare
from tupe_jax.data.pretraining.readers import HostShard, PreparedReader
from tupe_jax.data.pretraining.sentence_pairs import (
    SentencePair,
    document_pairs,
    encode_pairs,
    pack_pairs,
    window_pairs,
)
from tupe_jax.data.pretraining.seqio_tasks import make_task
from tupe_jax.data.pretraining.sources import parse_source
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.pretraining.streaming_reader import StreamingReader, epochs_of_task
from tupe_jax.data.pretraining.token_shards import read_index
from tupe_jax.data.tf_utils import elements, tf
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SEP_ID, SentencePieceTokenizer

LENGTH = 32
ROOM = LENGTH - 3


def numbered(document: int, lines: int, size: int = 4) -> list[np.ndarray]:
    """Return a document whose ids name the document, the line and the position."""
    first = 10_000 * (document + 1)
    return [first + 100 * line + np.arange(size, dtype=np.int32) for line in range(lines)]


def document_of(passage: np.ndarray) -> int:
    (number,) = set((passage // 10_000 - 1).tolist())
    return number


def pairs_of(count: int, lines: int, key: tuple[int, int] = (0, 0)) -> list[list[SentencePair]]:
    texts = [numbered(number, lines) for number in range(count)]
    return window_pairs(texts, [], LENGTH, key)


def test_a_random_passage_is_of_another_document_and_the_others_follow() -> None:
    for number, pairs in enumerate(pairs_of(30, lines=20)):
        for pair in pairs:
            assert document_of(pair.first) == number
            assert (document_of(pair.second) != number) == pair.is_random_next
            if not pair.is_random_next:
                line_before, line_after = pair.first[-1] // 100, pair.second[0] // 100
                assert line_after - line_before in (0, 1)  # 0 if the front of B was cut off


def test_half_of_the_passages_are_random() -> None:
    pairs = [pair for some in pairs_of(300, lines=40) for pair in some]
    share = np.mean([pair.is_random_next for pair in pairs])
    assert len(pairs) > 2000
    # Above one half: a last passage of one line has no successor.
    assert 0.47 < share < 0.58


def test_every_line_is_in_a_first_passage_or_follows_one() -> None:
    """Lines displaced by a random passage begin the next pair."""
    for number, pairs in enumerate(pairs_of(20, lines=9)):
        ids = [id for p in pairs for id in (*p.first, *p.second) if id // 10_000 - 1 == number]
        lines = {id // 100 % 100 for id in ids}
        assert lines == set(range(9))


def test_a_passage_of_one_line_has_a_random_successor() -> None:
    pairs = pairs_of(10, lines=1)
    assert [[pair.is_random_next for pair in some] for some in pairs] == [[True]] * 10


def test_one_document_in_ten_is_short_and_sizes_are_uniform() -> None:
    document, sizes = numbered(0, lines=ROOM, size=1), []
    for number in range(3000):
        draw = stream("test", number)
        pair = next(document_pairs(document, lambda: [np.arange(ROOM)], LENGTH, draw))
        if not pair.is_random_next:
            sizes.append(len(pair.first) + len(pair.second))
    short = [size for size in sizes if size < ROOM]
    assert len(short) / len(sizes) == pytest.approx(0.1, abs=0.025)
    assert min(short) == 2
    assert np.mean(short) == pytest.approx((2 + ROOM) / 2, abs=2.5)


def test_a_long_pair_loses_tokens_of_the_longer_passage_at_both_ends() -> None:
    fronts = Counter()
    for number in range(400):
        draw = stream("cut", number)
        first, second = np.arange(40), 100 + np.arange(10)
        kept = sentence_pairs._truncated(first, second, ROOM, draw)
        assert [len(kept[0]), len(kept[1])] == [19, 10]
        assert kept[0].tolist() == list(range(kept[0][0], kept[0][0] + 19))
        fronts[int(kept[0][0])] += 1
    assert np.mean(list(fronts.elements())) == pytest.approx(21 / 2, abs=0.5)
    assert fronts[0] + fronts[21] < 10  # each token is cut by its own draw


@pytest.mark.parametrize(("sizes", "kept"), [((20, 20), (15, 14)), ((9, 40), (9, 20))])
def test_the_longer_passage_is_cut_and_the_second_if_they_are_equal(sizes, kept) -> None:
    cut = sentence_pairs._truncated(*map(np.arange, sizes), ROOM, stream("cut"))
    assert tuple(map(len, cut)) == kept


def test_the_features_of_a_pair() -> None:
    pair = SentencePair(np.array([7, 8]), np.array([9]), is_random_next=True)
    features = encode_pairs([[pair]], 8)
    assert features["tokens"].tolist() == [[CLS_ID, 7, 8, SEP_ID, 9, SEP_ID, PAD_ID, PAD_ID]]
    assert features["segments"].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0]]
    assert features["is_random_next"].tolist() == [1]


def test_choices_depend_on_seed_pass_and_document_only() -> None:
    def flat(pairs: list[list[SentencePair]]) -> list[bytes]:
        return [p.first.tobytes() + p.second.tobytes() for some in pairs for p in some]

    pairs = pairs_of(30, lines=20)
    assert flat(pairs) == flat(pairs_of(30, lines=20))
    for key in ((1, 0), (0, 1)):
        assert flat(pairs) != flat(pairs_of(30, lines=20, key=key))
    firsts = [[pair.first.tolist() for pair in some] for some in pairs_of(40, lines=20)[:30]]
    assert firsts == [[pair.first.tolist() for pair in some] for some in pairs]


def test_windows_draw_from_the_previous_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_pairs, "WINDOW_DOCUMENTS", 4)
    texts = [numbered(number, lines=6) for number in range(9)]  # the last window has one document
    flat = [np.concatenate([np.append(line, SEP_ID) for line in text]) for text in texts]
    dataset = tf.data.Dataset.from_generator(
        lambda: ({"tokens": tokens} for tokens in flat),
        output_signature={"tokens": tf.TensorSpec([None], tf.int32)},
    )
    found = list(elements(pack_pairs((0, 0))(dataset, {"tokens": LENGTH})))
    assert sum(each["documents"] for each in found) == 9
    drawn = {
        (each["tokens"][1] // 10_000 - 1, each["tokens"][each["segments"] == 1][0] // 10_000 - 1)
        for each in found
        if each["is_random_next"]
    }
    assert all(first != second for first, second in drawn)
    assert {first // 4 - second // 4 for first, second in drawn} == {0, 1}


def test_a_single_document_has_no_pairs() -> None:
    assert window_pairs([numbered(0, 5)], [], LENGTH, (0, 0)) == [[]]
    assert window_pairs([], [numbered(0, 5)], LENGTH, (0, 0)) == []
    (pairs,) = window_pairs([numbered(0, 5)], [numbered(1, 5)], LENGTH, (0, 0))
    assert pairs


@pytest.mark.slow
def test_a_document_without_another_in_its_shard_is_dropped_and_counted(
    tokenizer: SentencePieceTokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As deduplication may leave one."""
    first, *rest = [text for text in documents(40) if not is_held_out(text)]
    for name, texts in (("a", rest), ("b", [*rest[:9], first])):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts))
    words = [f"--task=text:{tmp_path}/*.txt", f"--vocabulary={tokenizer.path}", "--packing=pairs"]
    words += ["--length=32", "--shards=2", "--workers=1", "--cleaning=none"]
    words += ["--deduplicate=exact"]
    assert main(["prepare", *words, f"--out={tmp_path}/rows"]) == 0
    assert f"{tmp_path}/*.txt: 1 documents have no pairs" in capsys.readouterr().out
    index = read_index(tmp_path / "rows")
    (source,) = index.sources
    assert (source.alone, source.documents, source.copies) == (1, len(rest), 9)
    (tmp_path / "a.txt").write_text(first)
    (tmp_path / "b.txt").write_text(rest[0])
    assert main(["prepare", *words, f"--out={tmp_path}/none"]) == 2
    error = capsys.readouterr().err
    assert "2 shards have one document" in error
    assert "blank lines" in error


# ----------------------------------------------------------------------- prepared, and both readers


@pytest.fixture(scope="module")
def settings(tmp_path_factory, tokenizer: SentencePieceTokenizer) -> PrepareConfig:
    folder = tmp_path_factory.mktemp("corpus")
    for seed in range(2):
        (folder / f"{seed}.txt").write_text("\n\n".join(documents(300, seed)))
    task = f"text:{folder}/*.txt"
    return PrepareConfig(task, tokenizer.path, LENGTH, shards=2, packing="pairs")


@pytest.fixture(scope="module")
def prepared(settings: PrepareConfig, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "rows"
    prepare(settings, folder, worker_count=1)
    return folder


def test_a_prepared_folder_holds_tokens_segments_and_labels(prepared: Path) -> None:
    index = read_index(prepared)
    assert (index.format, index.packing) == (2, "pairs")
    for split in ("train", "validation"):
        examples = read_examples(prepared, split)
        tokens, segments = examples["tokens"], examples["segments"]
        assert len(tokens) == index.splits[split].rows > 0
        assert np.count_nonzero(tokens) == index.splits[split].tokens
        ends = np.cumsum(tokens == SEP_ID, axis=1)
        assert (ends[:, -1] == 2).all()
        is_second = (ends - (tokens == SEP_ID) == 1) & (tokens != PAD_ID)
        np.testing.assert_array_equal(segments, is_second)
        assert set(examples["is_random_next"].tolist()) == {0, 1}


@pytest.mark.slow
def test_workers_and_interruptions_change_no_byte(settings, prepared: Path, tmp_path: Path) -> None:
    def interrupt(shards_done: int, shards: int, tokens: int) -> None:
        if shards_done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(settings, tmp_path / "rows", worker_count=1, show=interrupt)
    prepare(settings, tmp_path / "rows", worker_count=2)
    assert {file.name: file.read_bytes() for file in (tmp_path / "rows").iterdir()} == {
        file.name: file.read_bytes() for file in prepared.iterdir()
    }


@pytest.mark.slow
def test_a_second_pass_has_other_pairs(settings: PrepareConfig, tmp_path: Path) -> None:
    twice = replace(settings, task=f"2 * {settings.task}")
    prepare(twice, tmp_path / "rows", worker_count=1)
    tokens = read_examples(tmp_path / "rows", "train")["tokens"]
    first, second = np.array_split(tokens, 2)
    known = {row.tobytes() for row in first}
    assert np.mean([row.tobytes() in known for row in second]) < 0.5


def test_the_prepared_reader_serves_all_features_of_an_example(prepared: Path) -> None:
    sha256 = read_index(prepared).vocabulary_sha256
    known = {
        tokens.tobytes(): (segments.tobytes(), label)
        for tokens, segments, label in zip(*read_examples(prepared, "train").values(), strict=True)
    }

    def reader(shard: HostShard) -> PreparedReader:
        return PreparedReader(
            prepared,
            read_index(prepared),
            vocabulary_sha256=sha256,
            split="train",
            batch_size=8,
            seed=0,
            host_shard=shard,
        )

    whole = reader(HostShard()).next()
    halves = [reader(HostShard((part,), 2)).next() for part in range(2)]
    for name, values in whole.items():
        np.testing.assert_array_equal(values, np.concatenate([half[name] for half in halves]))
    for tokens, segments, label in zip(*whole.values(), strict=True):
        assert known[tokens.tobytes()] == (segments.tobytes(), label)


def test_the_streaming_reader_serves_the_same_examples_and_resumes(
    settings: PrepareConfig, tokenizer: SentencePieceTokenizer
) -> None:
    task = make_task(parse_source(settings.task), tokenizer, packing="pairs")

    def reader() -> StreamingReader:
        return StreamingReader(
            epochs_of_task(task, "train", LENGTH),
            task=task.name,
            vocabulary_sha256=tokenizer.sha256,
            length=LENGTH,
            batch_size=8,
            seed=0,
            host_shard=HostShard(),
        )

    one = reader()
    one.next()
    state, expected = one.state(), one.next()
    assert {name: values.shape for name, values in expected.items()} == {
        "tokens": (8, LENGTH),
        "segments": (8, LENGTH),
        "is_random_next": (8,),
    }
    resumed = reader()
    resumed.restore(state)
    for name, values in resumed.next().items():
        np.testing.assert_array_equal(values, expected[name])
    assert make_task(parse_source(settings.task), tokenizer, packing="pairs") is task
    other = make_task(parse_source(settings.task), tokenizer, packing="pairs", pairs_key=(1, 0))
    assert other.name != task.name

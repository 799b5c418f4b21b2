"""`tupe prepare`: the same bytes for any workers; unfinished folders are refused."""

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.pretraining.prepared_folder import lines_of, read_sequences
from tests.data.small_corpus import documents
from tupe_jax.cli import main
from tupe_jax.config.schema import Packing
from tupe_jax.data.pretraining import token_shards
from tupe_jax.data.pretraining.division import PrepareConfig, divide
from tupe_jax.data.pretraining.prepare import prepare, prepare_part
from tupe_jax.data.pretraining.splits import is_held_out, is_in_share
from tupe_jax.data.pretraining.unfinished import UNFINISHED, writing_errors
from tupe_jax.data.pretraining.validation_split import repack
from tupe_jax.run.shard import WorkShard
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SEP_ID, SentencePieceTokenizer
from tupe_jax.utils.errors import RetryError, UserError

FILES = 6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for seed in range(FILES):
        (folder / f"{seed}.txt").write_text("\n\n".join(documents(200, seed)))
    return folder


@pytest.fixture(scope="module")
def settings(corpus: Path, tokenizer: SentencePieceTokenizer) -> PrepareConfig:
    return PrepareConfig(f"text:{corpus}/*.txt", tokenizer.path, length=32, shards=FILES)


@pytest.fixture(scope="module")
def prepared(settings: PrepareConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "rows"
    prepare(settings, folder, worker_count=1)
    return folder


def exit_code(words: list[str]) -> object:
    try:
        return main(words)
    except SystemExit as end:  # an argument that argparse refuses
        return end.code


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_folder_holds_every_document_once_in_its_split(
    prepared: Path, tokenizer: SentencePieceTokenizer
) -> None:
    index = token_shards.read_index(prepared)
    texts = [text for seed in range(FILES) for text in documents(200, seed)]
    for split, wanted in (("train", False), ("validation", True)):
        split_texts = [text for text in texts if is_held_out(text) == wanted]
        tokens = read_sequences(prepared, split)
        assert index.splits[split].documents == len(split_texts)
        assert index.splits[split].tokens == np.count_nonzero(tokens != PAD_ID)
        assert (tokens[:, 0] == CLS_ID).all()
        lines = [line for text in split_texts for line in text.lower().split("\n")]
        assert sorted(lines_of(tokens, tokenizer)) == sorted(lines)
    assert index.vocabulary_sha256 == tokenizer.sha256
    assert len(index.splits["train"].shards) == FILES  # each file is one block, for one shard


def test_only_the_last_sequence_of_a_shard_is_padded(prepared: Path) -> None:
    index = token_shards.read_index(prepared)
    for split in ("train", "validation"):
        padded = (read_sequences(prepared, split) == PAD_ID).any(axis=1)
        last = np.cumsum([shard.rows for shard in index.splits[split].shards]) - 1
        assert set(np.flatnonzero(padded)) <= set(last)


@pytest.mark.slow
def test_killed_and_run_again_it_gives_the_same_bytes_and_keeps_finished_shards(
    settings: PrepareConfig, prepared: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    code = "import sys; from tupe_jax.cli import main; sys.exit(main(sys.argv[1:]))"
    script = tmp_path / "tupe.py"
    script.write_text(f"if __name__ == '__main__':\n    {code}\n")
    command = [sys.executable, str(script), "prepare", f"--task={settings.task}"]
    command += [f"--vocabulary={settings.tokenizer}", "--length=32", f"--shards={FILES}"]
    command += ["--workers=2", "--cleaning=none", f"--out={folder}"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=environment)
    records = lambda: list((folder / UNFINISHED).glob("0*.json"))  # noqa: E731
    try:
        while not records():
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    finished = [
        folder / token_shards.shard_file_name("train", int(path.stem), FILES) for path in records()
    ]
    assert 0 < len(finished) < FILES
    # The bar alone: no log lines of TensorFlow about GPUs, in any process.
    # On a busy machine it is drawn more than once, in a file as a line of its own.
    bar = re.compile(rf" *\d+%\|.*\| \d/{FILES} \[.*shard/s.*\]")
    drawn = re.split(r"[\r\n]+", (tmp_path / "stderr").read_text().strip("\r\n"))
    assert [line for line in drawn if not bar.fullmatch(line)] == []
    with pytest.raises(UserError, match=r"index\.json"):
        token_shards.read_index(folder)
    before = {path: path.stat().st_mtime_ns for path in finished}
    prepare(settings, folder, worker_count=1)
    assert contents(folder) == contents(prepared)
    assert before == {path: path.stat().st_mtime_ns for path in finished}


def test_the_folder_holds_the_tokenizer(prepared: Path, tokenizer: SentencePieceTokenizer) -> None:
    index = token_shards.read_index(prepared)
    assert index.tokenizer == token_shards.TOKENIZER_FILE
    assert (prepared / index.tokenizer).read_bytes() == tokenizer.path.read_bytes()
    token_shards.check_tokenizer_file(prepared, index)


@pytest.mark.slow
def test_whole_sentences_are_the_same_tokens_with_padding(
    settings: PrepareConfig, prepared: Path, tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    whole = replace(settings, packing="sentences")
    index = prepare(whole, tmp_path / "rows", worker_count=2).index
    assert token_shards.read_index(tmp_path / "rows").packing == "sentences"
    for split in ("train", "validation"):
        tokens = read_sequences(tmp_path / "rows", split)
        assert lines_of(tokens, tokenizer) == lines_of(read_sequences(prepared, split), tokenizer)
        assert index.splits[split].tokens == np.count_nonzero(tokens != PAD_ID)
        assert index.splits[split].rows == len(tokens)
        # Every line of this corpus fits, so every sequence ends with a line.
        sizes = np.count_nonzero(tokens != PAD_ID, axis=1)
        assert (tokens[np.arange(len(tokens)), sizes - 1] == SEP_ID).all()
        assert (tokens[:, :-1][tokens[:, 1:] != PAD_ID] != PAD_ID).all()  # padding is at the end


@pytest.mark.slow
def test_whole_sentences_that_were_interrupted_give_the_same_bytes(
    settings: PrepareConfig, tmp_path: Path
) -> None:
    whole = replace(settings, packing="sentences")
    prepare(whole, tmp_path / "calm", worker_count=1)

    def interrupt(shards_done: int, shards: int, tokens: int) -> None:
        if shards_done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(whole, tmp_path / "rows", worker_count=1, show=interrupt)
    with pytest.raises(UserError, match=r"packing 'sentences'.*'stream'"):
        prepare(settings, tmp_path / "rows", worker_count=1)
    prepare(whole, tmp_path / "rows", worker_count=1)
    assert contents(tmp_path / "rows") == contents(tmp_path / "calm")


@pytest.mark.slow
def test_a_folder_begun_by_an_older_version_is_finished(
    settings: PrepareConfig, prepared: Path, tmp_path: Path
) -> None:
    """Its settings.json does not name the packing."""

    def interrupt(shards_done: int, shards: int, tokens: int) -> None:
        if shards_done == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "rows"
    with pytest.raises(KeyboardInterrupt):
        prepare(settings, folder, worker_count=1, show=interrupt)
    record = folder / UNFINISHED / "settings.json"
    begun = json.loads(record.read_text())
    del begun["packing"]
    record.write_text(json.dumps(begun))
    (folder / token_shards.TOKENIZER_FILE).unlink()
    prepare(settings, folder, worker_count=1)
    assert contents(folder) == contents(prepared)


@pytest.mark.slow
def test_the_given_tokenizer_may_change_during_preparation(
    settings: PrepareConfig, prepared: Path, tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    given = tmp_path / "given.model"
    given.write_bytes(tokenizer.path.read_bytes())

    def delete(shards_done: int, shards: int, tokens: int) -> None:
        given.unlink(missing_ok=True)

    folder = tmp_path / "rows"
    prepare(replace(settings, tokenizer=given), folder, worker_count=1, show=delete)
    assert contents(folder) == contents(prepared)


def test_a_folder_begun_with_other_settings_is_refused(
    settings: PrepareConfig,
    prepared: Path,
    corpus: Path,
    tokenizer: SentencePieceTokenizer,
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match="already finished"):
        prepare(settings, prepared, worker_count=1)
    bad = corpus / "z.bad"
    bad.write_bytes(b"text\n\n\xff")
    broken = PrepareConfig(f"text:{bad}", tokenizer.path, length=32)
    folder = tmp_path / "rows"
    with pytest.raises(UserError, match=r"z\.bad, line 3"):
        prepare(broken, folder, worker_count=1)
    assert not (folder / token_shards.INDEX_FILE).exists()
    assert not list(folder.glob("*.array_record"))
    longer = PrepareConfig(f"text:{bad}", tokenizer.path, length=64)
    with pytest.raises(UserError, match=r"length 32.*64"):
        prepare(longer, folder, worker_count=1)
    # A changed corpus would give a mixture of old and new shards.
    bad.write_text("fixed")
    with pytest.raises(UserError, match="corpus"):
        prepare(broken, folder, worker_count=1)


def test_broken_text_is_a_one_line_error(
    tokenizer: SentencePieceTokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\n\nb\xffd")
    arguments = [f"--task=text:{tmp_path}/*.txt", f"--vocabulary={tokenizer.path}"]
    arguments += [f"--out={tmp_path}/rows"]
    assert main(["prepare", *arguments]) == 2
    last_line = capsys.readouterr().err.strip().split("\n")[-1]
    assert last_line.startswith(f"tupe prepare: {tmp_path}/a.txt, line 3: byte 0xff is not UTF-8")
    assert not (tmp_path / "rows" / token_shards.INDEX_FILE).exists()


def test_a_corpus_without_text_gives_no_index(
    tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "blank.txt").write_text("\n \n\n")
    settings = PrepareConfig(f"text:{tmp_path}/blank.txt", tokenizer.path, length=32)
    with pytest.raises(UserError, match="no text"):
        prepare(settings, tmp_path / "rows", worker_count=1)
    assert not (tmp_path / "rows" / token_shards.INDEX_FILE).exists()


def test_a_job_without_training_sequences_leaves_no_shard(
    tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    held_out = [text for text in documents(1000) if is_held_out(text)]
    (tmp_path / "a.txt").write_text("\n\n".join(held_out))
    (tmp_path / "b.txt").write_text(documents(1, seed=1)[0])
    settings = PrepareConfig(f"text:{tmp_path}/*.txt", tokenizer.path, length=32, shards=2)
    index = prepare(settings, tmp_path / "rows", worker_count=1).index
    assert [shard.file for shard in index.splits["train"].shards] == [
        "train-00001-of-00002.array_record"
    ]
    assert index.splits["validation"].documents == len(held_out)
    assert {path.name for path in (tmp_path / "rows").iterdir()} == {
        token_shards.INDEX_FILE,
        token_shards.TOKENIZER_FILE,
        "train-00001-of-00002.array_record",
        "validation-00000-of-00001.array_record",
    }


def test_weights_are_passes_over_a_source(corpus: Path, tokenizer: SentencePieceTokenizer) -> None:
    task = f"2.5 * text:{corpus}/0.txt + text:{corpus}/1.txt"
    jobs, _ = divide(PrepareConfig(task, tokenizer.path, length=32))
    assert [(Path(job.source).name, job.share, job.pass_number) for job in jobs] == [
        ("0.txt", 1.0, 0),
        ("0.txt", 1.0, 1),
        ("0.txt", 0.5, 2),
        ("1.txt", 1.0, 0),
    ]
    assert [job.number for job in jobs] == [0, 1, 2, 3]


def test_a_mixture_repeats_training_documents_by_weight_and_validation_never(
    corpus: Path, tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    task = f"1.5 * text:{corpus}/0.txt + text:{corpus}/1.txt"
    index = prepare(PrepareConfig(task, tokenizer.path, length=32), tmp_path / "rows", 1).index
    texts = [[t for t in documents(200, seed) if not is_held_out(t)] for seed in (0, 1)]
    extra = [text for text in texts[0] if is_in_share(0.5, text)]
    assert index.splits["train"].documents == len(texts[0]) + len(extra) + len(texts[1])
    held_out = 400 - len(texts[0]) - len(texts[1])
    assert index.splits["validation"].documents == held_out
    counts = {Path(each.source).name: each for each in index.sources}
    assert counts["0.txt"].documents == len(texts[0]) + len(extra)
    assert counts["1.txt"].documents == len(texts[1])
    assert counts["0.txt"].validation_documents == 200 - len(texts[0])
    for total in ("rows", "tokens", "documents"):
        of_sources = sum(getattr(each, total) for each in index.sources)
        assert of_sources == getattr(index.splits["train"], total)
    assert token_shards.read_index(tmp_path / "rows") == index


def test_shards_are_divided_among_sources_by_size(
    corpus: Path, tokenizer: SentencePieceTokenizer
) -> None:
    task = f"text:{corpus}/0.txt + text:{corpus}/*.txt"
    jobs, _ = divide(PrepareConfig(task, tokenizer.path, length=32, shards=7))
    assert [job.count for job in jobs] == [1] + [6] * 6
    with pytest.raises(UserError, match=r"--shards=1: .*2 "):
        divide(PrepareConfig(task, tokenizer.path, length=32, shards=1))
    with pytest.raises(UserError, match=r"\b60 shards .*\b6\b"):
        divide(PrepareConfig(f"text:{corpus}/*.txt", tokenizer.path, length=32, shards=60))


def repacked(shards: list[np.ndarray], packing: Packing) -> np.ndarray:
    return np.concatenate(list(repack(shards, packing, shards[0].shape[1])))


def test_repacking_removes_padding_between_shards() -> None:
    parted = np.array([[1, 10, 11, 2], [1, 12, 0, 0], [1, 13, 2, 0]])
    assert repacked([parted], "stream").tolist() == [[1, 10, 11, 2], [1, 12, 13, 2]]
    assert repacked([np.zeros([0, 4], np.int32)], "stream").shape == (0, 4)


def test_repacking_keeps_sentences_whole() -> None:
    parted = np.array([[1, 10, 2, 0, 0], [1, 11, 2, 0, 0], [1, 12, 13, 2, 0], [1, 14, 2, 0, 0]])
    expected = [[1, 10, 2, 11, 2], [1, 12, 13, 2, 0], [1, 14, 2, 0, 0]]
    assert repacked([parted], "sentences").tolist() == expected
    assert repacked([np.zeros([0, 5], np.int32)], "sentences").shape == (0, 5)


@given(
    st.lists(st.lists(st.integers(1, 11), max_size=6), min_size=1, max_size=4),
    st.sampled_from(["stream", "sentences"]),
)
def test_repacking_does_not_depend_on_the_division_into_shards(
    shards: list[list[int]], packing: Packing
) -> None:
    """Each shard has lines of these sizes; a sequence has room for five tokens."""
    streams = [[id for size in sizes for id in [9] * (size - 1) + [SEP_ID]] for sizes in shards]
    parts = [repacked([one_row(stream)], packing) for stream in streams]
    whole = repacked([one_row([id for stream in streams for id in stream])], packing)
    np.testing.assert_array_equal(repacked(parts, packing), whole)


def one_row(stream: list[int]) -> np.ndarray:
    """A stream as sequences of two tokens each, the last one padded."""
    pairs = np.array([*stream, *[PAD_ID] * (len(stream) % 2)], np.int32).reshape(-1, 2)
    return np.pad(np.pad(pairs, ((0, 0), (1, 0)), constant_values=CLS_ID), ((0, 0), (0, 3)))


@pytest.mark.slow
def test_parts_made_by_several_calls_are_collected(
    settings: PrepareConfig, prepared: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    first = prepare_part(settings, folder, WorkShard(1, 2))
    assert (first.stage, first.jobs, first.missing) == ("shards", FILES, FILES // 2)
    made = {path: path.stat().st_mtime_ns for path in folder.glob("train-*")}
    assert len(made) == FILES // 2
    assert prepare_part(settings, folder, WorkShard(1, 2)).work.tokens == 0  # nothing left to do
    assert prepare(settings, folder).work.tokens > 0
    assert contents(folder) == contents(prepared)
    assert made == {path: path.stat().st_mtime_ns for path in made}


def test_parts_share_the_folder_and_shut_out_the_collecting_call(
    settings: PrepareConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"

    def others(jobs_done: int, jobs: int, tokens: int) -> None:
        if jobs_done == 0 and not refused:
            with pytest.raises(UserError, match="another `tupe prepare`"):
                prepare(settings, folder)
            refused.append(prepare_part(settings, folder, WorkShard(5, 6)).missing)

    refused: list[int] = []
    prepare_part(settings, folder, WorkShard(4, 6), show=others)
    assert refused == [FILES - 1]


def test_a_folder_begun_with_a_cache_of_older_versions_is_refused(
    settings: PrepareConfig, tmp_path: Path
) -> None:
    prepare_part(settings, tmp_path / "rows", WorkShard(5, 6))
    record = tmp_path / "rows" / UNFINISHED / "settings.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"cache": "/shared/cache"}))
    with pytest.raises(UserError, match="cache '/shared/cache'"):
        prepare(settings, tmp_path / "rows")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--part=2/2", "--part=2/2: expected I/N"),
        ("--part=0/2 --runner=DirectRunner", "--part "),
        ("--workers=2 --runner=DirectRunner", "--workers "),
        ("--direct_num_workers=2", "--direct_num_workers"),
        ("--length=1", "--length=1 must be at least 2"),
        ("--workers=0", "--workers=0 must be at least 1"),
        ("--cleaning=soap", "cleaning step 'soap'"),
        ("--task=text:/nowhere/*.txt", "no file matches '/nowhere/*.txt'"),
        ("--vocabulary=/nowhere.model", "/nowhere.model: cannot read the tokenizer"),
    ],
)
def test_wrong_arguments_are_one_line_errors_and_nothing_is_written(
    settings: PrepareConfig,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    argument: str,
    message: str,
) -> None:
    arguments = [f"--task={settings.task}", f"--vocabulary={settings.tokenizer}"]
    arguments += [f"--out={tmp_path}/rows", *argument.split()]
    assert exit_code(["prepare", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert "shard" not in errors  # no empty progress bar
    assert not (tmp_path / "rows").exists()


def test_a_corpus_that_changes_meanwhile_is_refused(
    tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text("one line\n\n" * 50)
    settings = PrepareConfig(f"text:{tmp_path}/*.txt", tokenizer.path, length=16, shards=1)

    def a_file_appears(shards_done: int, shards: int, tokens: int) -> None:
        (tmp_path / "a.txt").write_text("another\n")

    with pytest.raises(UserError, match="corpus"):
        prepare(settings, tmp_path / "out", worker_count=1, show=a_file_appears)
    assert not (tmp_path / "out" / "index.json").exists()


@pytest.mark.slow
def test_a_folder_has_one_writer(settings: PrepareConfig, tmp_path: Path) -> None:
    def second_command(shards_done: int, shards: int, tokens: int) -> None:
        with pytest.raises(UserError, match="another `tupe prepare`"):
            prepare(settings, tmp_path / "out", worker_count=1)
        refused.append(True)

    refused: list[bool] = []
    prepare(settings, tmp_path / "out", worker_count=1, show=second_command)
    assert refused


@pytest.fixture
def limit_file_size() -> Iterator[Callable[[int], None]]:
    """For this process, files cannot grow larger, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_a_line_that_names_the_file(
    tokenizer: SentencePieceTokenizer, tmp_path: Path, limit_file_size: Callable[[int], None]
) -> None:
    settings = PrepareConfig("builtin:20", tokenizer.path, length=64, shards=1)
    limit_file_size(100)  # less than settings.json
    with pytest.raises(RetryError, match=r"rows.*: cannot write \(File too large\)"):
        prepare(settings, tmp_path / "rows")
    limit_file_size(10_000)
    record = token_shards.record_type("stream", 1 << 16, 512)
    tokens = np.random.default_rng(0).integers(1 << 16, size=(100, 512))
    examples = token_shards.examples_of({"tokens": tokens})
    with pytest.raises(RetryError, match=r"rows/train-0: cannot write \(.*File too large\)"):
        token_shards.write_shard(tmp_path / "rows" / "train-0", examples, record)
    assert not list((tmp_path / "rows").glob("train*"))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_a_line(tmp_path: Path, number: int) -> None:
    message = r"rows: cannot write .*give another one"
    with pytest.raises(UserError, match=message), writing_errors(tmp_path / "rows"):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("file", "file: "),
        ("file/rows", "rows: .*Not a directory"),
    ],
)
def test_a_file_instead_of_a_folder_is_refused(
    settings: PrepareConfig, tmp_path: Path, out: str, message: str
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=message):
        prepare(settings, tmp_path / out, worker_count=1)
    assert (tmp_path / "file").read_text() == "mine"

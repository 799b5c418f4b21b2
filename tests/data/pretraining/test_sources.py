"""SeqIO sources: every document once, in any number of shards; held-out ones apart."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import seqio
import tensorflow_datasets as tfds
from gcsfs.retry import HttpError
from hypothesis import given
from hypothesis import strategies as st

from tests.data.small_corpus import documents
from tests.gcs_emulator import Emulator
from tupe_jax.data.pretraining.sources import DocumentSource, parse_source
from tupe_jax.data.pretraining.sources.builtin_corpus import Builtin
from tupe_jax.data.pretraining.sources.files import FileSource, match_files
from tupe_jax.data.pretraining.sources.text_files import TextFiles
from tupe_jax.data.pretraining.sources.tfds_data import Tfds
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.tf_utils import elements
from tupe_jax.utils.errors import RetryError, UserError
from tupe_jax.utils.object_storage import upload
from tupe_jax.utils.paths import Path as StoragePath


def read_all(file: Path, block_bytes: int) -> list[str]:
    source = TextFiles(str(file), block_bytes=block_bytes)
    return [document.decode() for document in elements(source.documents(0, 1))]


def expected(text: str) -> list[str]:
    documents = re.split(r"\n(?:[ \t\r]*\n)+", f"\n{text}\n")
    lines = ([line.strip() for line in document.split("\n")] for document in documents)
    joined = ("\n".join(line for line in document if line) for document in lines)
    return [document for document in joined if document]


pieces = st.sampled_from(["a", "bb ccc", "é", " ", "\n", "\n\n", "\r\n"])
texts = st.lists(pieces, min_size=1).map("".join)


def read_blocks(source: FileSource, file: str) -> list[str]:
    documents, block = [], 0
    while (found := source.read_block(file, block)) is not None:
        assert not found.flaws
        documents += found.documents
        block += 1
    return documents


@given(texts, st.integers(1, 12))
def test_blocks_of_any_size_hold_every_document_once(
    tmp_path_factory: pytest.TempPathFactory, text: str, block_bytes: int
) -> None:
    file = tmp_path_factory.mktemp("text") / "a.txt"
    file.write_bytes(text.encode())
    source = TextFiles(str(file), block_bytes=block_bytes)
    assert read_blocks(source, str(file)) == expected(text)


def test_gzipped_files_read_the_same(tmp_path: Path) -> None:
    text = "\n\n".join(f"document {n}\nwith two lines" for n in range(300))
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert read_all(tmp_path / "a.txt.gz", 1000) == read_all(tmp_path / "a.txt", 1000)
    # Blocks can be read in any order, also backwards.
    source = TextFiles(f"{tmp_path}/a.txt*", block_bytes=1000)
    for block in (5, 2, 3):
        plain = source.read_block(f"{tmp_path}/a.txt", block)
        assert source.read_block(f"{tmp_path}/a.txt.gz", block) == plain
        assert plain.documents


@pytest.mark.parametrize("name", ["bad.txt", "bad.txt.gz"])
def test_broken_utf8_is_an_error_naming_file_and_line(tmp_path: Path, name: str) -> None:
    lines = [b"good line"] * 40
    lines[30] = b"caf\xe9 au lait"
    content = b"\n\n".join(lines)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(UserError, match=rf"{name}, line 61: .*0xe9 .*UTF-8"):
        read_all(tmp_path / name, 100)


def test_a_truncated_gzip_file_is_an_error(tmp_path: Path) -> None:
    content = gzip.compress(b"".join(b"line %d\n\n" % n for n in range(1000)))
    (tmp_path / "cut.gz").write_bytes(content[:-100])
    with pytest.raises(UserError, match=r"cut\.gz, line \d+: .*gzip"):
        read_all(tmp_path / "cut.gz", 1 << 20)
    (tmp_path / "none.gz").write_bytes(b"plain text")
    with pytest.raises(UserError, match=r"none\.gz, line 1: .*gzip"):
        read_all(tmp_path / "none.gz", 1 << 20)


@pytest.mark.parametrize("name", ["gone.txt", "gone.txt.gz"])
def test_a_file_deleted_while_it_is_read_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    content = b"a line\n\n" * 100
    file.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    source = TextFiles(str(file), block_bytes=100)
    assert source.read_block(str(file), 0)
    file.unlink()
    with pytest.raises(UserError, match=rf"{name}: .*No such file"):
        source.read_block(str(file), 1)


def test_a_glob_without_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\*\.txt'"):
        match_files(f"{tmp_path}/*.txt")
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt").touch()
    with pytest.raises(UserError, match=r"a\.txt: "):
        match_files(f"{tmp_path}/*.txt")
    (tmp_path / "c.txt").write_text("text")
    assert [Path(file.name).name for file in match_files(f"{tmp_path}/*.txt")] == [
        "a.txt",
        "b.txt",
        "c.txt",
    ]


def test_objects_are_found_and_read_without_a_request_for_each_version(
    gcs: Emulator, gs_folder: StoragePath
) -> None:
    for name in ("a", "b", "c"):
        (gs_folder / f"{name}.txt").write_text("a line\n\n" * 100)
    (gs_folder / "more" / "d.txt").write_text("a line")
    match_files(f"{gs_folder}/*.txt")  # the first asks whether the bucket answers
    gcs.requests.clear()
    found = match_files(f"{gs_folder}/*")
    assert len(gcs.requests) == 1
    assert [Path(file.name).name for file in found] == ["a.txt", "b.txt", "c.txt"]
    (gs_folder / "b.txt").write_text("a changed line\n\n" * 100)
    changed = [old == new for old, new in zip(found, match_files(f"{gs_folder}/*"), strict=True)]
    assert changed == [True, False, True]
    source = TextFiles(f"{gs_folder}/a.txt", block_bytes=10)
    assert source.read_block(f"{gs_folder}/a.txt", 0)
    gcs.requests.clear()
    for block in range(1, source.most_shards):
        assert source.read_block(f"{gs_folder}/a.txt", block)
    assert gcs.requests == []  # the file is open, and in the buffer


@pytest.mark.parametrize("error", [ConnectionResetError(), HttpError({"code": 503})])
def test_an_outage_of_the_storage_while_text_is_read_is_a_retry(
    error: Exception, gs_folder: StoragePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gs_folder / "a.txt").write_text("a line\n\n" * 100)
    source = TextFiles(f"{gs_folder}/*.txt")

    async def fail(*_: object, **__: object) -> None:
        raise error

    # What all requests of the client go through.
    monkeypatch.setattr("gcsfs.core.GCSFileSystem._request", fail)
    with pytest.raises(RetryError):
        list(elements(source.documents(0, 1)))


def read(source: DocumentSource, split: str, shards: int = 1) -> list[str]:
    return [
        document.decode()
        for index in range(shards)
        for document in elements(
            source.get_dataset(split, shard_info=seqio.ShardInfo(index, shards))
        )
    ]


@pytest.fixture
def corpus(tmp_path: Path) -> list[str]:
    """Write files of different kinds; return their documents."""
    texts = [documents(300, seed) for seed in range(3)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts[0]))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("\n\n".join(texts[1]).encode()))
    (tmp_path / "c.txt").write_text("\n\n\n".join(texts[2]) + "\n\n")
    (tmp_path / "empty.txt").touch()
    return [text for file_texts in texts for text in file_texts]


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_train_and_validation_are_all_documents_once(
    tmp_path: Path, corpus: list[str], shards: int
) -> None:
    source = TextFiles(f"{tmp_path}/*.txt*", block_bytes=2_000)
    train, validation = read(source, "train", shards), read(source, "validation", shards)
    assert sorted(train + validation) == sorted(corpus)
    assert validation
    assert sorted(validation) == sorted(filter(is_held_out, corpus))


def test_many_gzipped_files_are_not_divided(tmp_path: Path) -> None:
    for seed in range(3):
        content = gzip.compress("\n\n".join(documents(50, seed)).encode())
        (tmp_path / f"{seed}.gz").write_bytes(content)
    source = TextFiles(f"{tmp_path}/*.gz")
    shards = [[d.decode() for d in elements(source.documents(index, 3))] for index in range(3)]
    assert shards == [documents(50, seed) for seed in range(3)]


def test_more_shards_than_the_corpus_can_give_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(UserError, match=r"\b2 shards .*\b1\b"):
        read(TextFiles(f"{tmp_path}/a.txt"), "train", shards=2)


def test_a_split_that_is_not_there_is_an_error(tmp_path: Path, corpus: list[str]) -> None:
    with pytest.raises(UserError, match="'test'"):
        read(TextFiles(f"{tmp_path}/a.txt"), "test")


def test_broken_utf8_comes_out_of_tensorflow_as_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\n\nb\xff\n")
    with pytest.raises(UserError, match=r"a\.txt, line 3: .*0xff .*UTF-8"):
        read(TextFiles(f"{tmp_path}/a.txt"), "train")


# --- TFDS: small data sets written in TFDS's own format ---------------------------------------

ARTICLE = (
    "\n_START_ARTICLE_\nAlan Turing\n_START_SECTION_\nLife\n_START_PARAGRAPH_\n"
    "He was born in {}._NEWLINE_He ran.\n_START_SECTION_\nWork\n_START_PARAGRAPH_\nHe thought."
)
TFDS_CASES = [
    (
        "wiki40b/en",
        lambda n: {"text": ARTICLE.format(n), "version_id": "1", "wikidata_id": "Q1"},
        "He was born in {}.\nHe ran.\nHe thought.",
    ),
    (
        "wikipedia/20230601.en",
        lambda n: {"title": "T", "text": f"Line {n}.\n\nHistory\nMore.\n\nCategory:Things"},
        "Line {}.\nHistory\nMore.",
    ),
    (
        "c4/en",
        lambda n: {
            "text": f"Page {n}.\nSecond line.",
            "content-length": "1",
            "content-type": "text/plain",
            "timestamp": "2019",
            "url": "http://a.b",
        },
        "Page {}.\nSecond line.",
    ),
    ("lm1b", lambda n: {"text": f"One sentence , {n} ."}, "One sentence , {} ."),
]


def store(folder: Path, name: str, example: Callable[[int], object], count: int) -> None:
    """Write a small data set with the features and version of the real one."""
    builder = tfds.builder(name, data_dir=folder)
    tfds.dataset_builders.store_as_tfds_dataset(
        name=builder.name,
        config=builder.builder_config.name if builder.builder_config else None,
        version=builder.version,
        features=builder.info.features,
        split_datasets={"train": [(n, example(n)) for n in range(count)]},
        data_dir=folder,
        disable_shuffling=True,
    )


@pytest.mark.parametrize(("name", "example", "document"), TFDS_CASES)
def test_tfds_data_sets_become_documents_of_lines(
    tmp_path: Path, name: str, example, document: str
) -> None:
    store(tmp_path, name, example, count=400)
    source = Tfds(name, data_dir=str(tmp_path))
    expected = [document.format(n) for n in range(400)]
    train = read(source, "train", shards=3)
    assert sorted(train + read(source, "validation", shards=3)) == sorted(expected)
    assert train == [text for text in expected if not is_held_out(text)]


def test_a_tfds_name_without_config_selects_the_english_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(UserError, match=r"wikipedia/20230601\.en: .*tfds build"):
        parse_source("wikipedia")


def test_a_tfds_data_set_is_found_on_object_storage(
    tmp_path: Path, gs_folder: StoragePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow's own client, which reads the records, knows only the real storage."""
    name, example, _ = TFDS_CASES[-1]
    store(tmp_path, name, example, count=4)
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        upload(file, gs_folder / str(file.relative_to(tmp_path)))
    monkeypatch.setenv("TFDS_DATA_DIR", str(gs_folder))
    assert parse_source(name).identity == Tfds(name, data_dir=str(tmp_path)).identity
    monkeypatch.setenv("TFDS_DATA_DIR", f"{gs_folder}/elsewhere")
    with pytest.raises(UserError, match=r"lm1b: not found in gs://"):
        parse_source(name)


def test_a_tfds_folder_of_another_scheme_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", "s3://bucket/tfds")
    with pytest.raises(UserError, match="s3://bucket/tfds"):
        parse_source("lm1b")


# --- The built-in corpus ----------------------------------------------------------------------


def test_the_built_in_corpus_is_a_function_of_its_seed() -> None:
    texts = read(Builtin(40, seed=1), "train", shards=3)
    assert texts == read(Builtin(40, seed=1), "train")
    assert texts != read(Builtin(40, seed=2), "train")
    assert all("\n" in text for text in texts)


def test_an_unknown_source_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'books'.*builtin.*text:GLOB.*lm1b"):
        parse_source("books")

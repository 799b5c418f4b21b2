"""JSON Lines and Parquet: the documents of text files, in bounded memory; broken ones are named."""

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.data.pretraining.prepared_folder import read_sequences
from tests.data.small_corpus import documents
from tests.gcs_emulator import Emulator
from tupe_jax.cli import main
from tupe_jax.data.pretraining import token_shards
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.prepare import prepare
from tupe_jax.data.pretraining.sources import parse_source
from tupe_jax.data.pretraining.sources.files import FileSource
from tupe_jax.data.pretraining.sources.json_lines import LONGEST_LINE, JsonLines
from tupe_jax.data.pretraining.sources.parquet_files import ParquetFiles
from tupe_jax.data.pretraining.sources.text_files import TextFiles
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.tf_utils import elements
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.object_storage import upload
from tupe_jax.utils.paths import Path as StoragePath

BLOCK = 2_000
TEXTS = documents(240)
ZSTANDARD = zstandard.ZstdCompressor(write_checksum=True)
COMPRESS = {"": bytes, ".gz": gzip.compress, ".zst": ZSTANDARD.compress}


def json_lines(texts: Sequence[object], field: str = "text") -> bytes:
    return b"".join(json.dumps({"id": n, field: t}).encode() + b"\n" for n, t in enumerate(texts))


def write_parquet(file: Path, texts: Sequence[object], kind: pa.DataType | None = None) -> None:
    table = pa.table({"id": range(len(texts)), "text": pa.array(texts, kind)})
    pq.write_table(table, file, row_group_size=77, data_page_size=500)


def read(source: FileSource, shards: int = 1) -> list[str]:
    """All documents, without TensorFlow."""
    blocks = [block for index in range(shards) for block in source.blocks(index, shards)]
    for block in blocks:
        source.stop_at(block.flaws)
    return [document for block in blocks for document in block.documents]


def broken(source: FileSource, shards: int = 1) -> int:
    return sum(source.count_broken(index, shards).count for index in range(shards))


def files_damaged(source: FileSource, shards: int) -> int:
    return sum(source.count_broken(index, shards).damaged for index in range(shards))


def files_of(folder: Path, texts: Sequence[str]) -> list[FileSource]:
    """The same documents in every format, as sources of small blocks."""
    for suffix, compress in COMPRESS.items():
        (folder / f"a.txt{suffix}").write_bytes(compress("\n\n".join(texts).encode()))
        (folder / f"a.jsonl{suffix}").write_bytes(compress(json_lines(texts)))
    write_parquet(folder / "a.parquet", texts)
    kinds = ((TextFiles, "txt"), (JsonLines, "jsonl"))
    files = [kind(f"{folder}/a.{n}{s}", block_bytes=BLOCK) for kind, n in kinds for s in COMPRESS]
    return [*files, ParquetFiles(f"{folder}/a.parquet", block_bytes=BLOCK)]


@pytest.mark.parametrize("shards", [1, 3])
def test_every_format_has_the_same_documents_once(tmp_path: Path, shards: int) -> None:
    for source in files_of(tmp_path, TEXTS):
        assert source.most_shards > 10
        found = read(source, shards)
        assert sorted(found) == sorted(TEXTS), source.spec
        assert found == TEXTS or shards > 1
        if source.spec.endswith((".txt", ".zst", ".parquet")):
            of_dataset = (elements(source.documents(index, shards)) for index in range(shards))
            assert [each.decode() for documents in of_dataset for each in documents] == found
        assert broken(source, shards) == 0


lines = st.lists(st.sampled_from(["a", " b\t", "", " ", "\u00a0", "\u2028", "\r", "é\x0b"]))


@given(lines.map("\n".join))
def test_the_lines_of_a_record_are_those_of_a_text_file(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    """A record may hold blank lines, which would end a document of a text file."""
    folder = tmp_path_factory.mktemp("text")
    without_blank = "\n".join(line for line in text.split("\n") if line.strip(" \t\r\v\f"))
    (folder / "a.txt").write_bytes(f"first\n\n{without_blank}".encode())
    (folder / "a.jsonl").write_bytes(json_lines(["first", text]))
    write_parquet(folder / "a.parquet", ["first", text])
    expected = TextFiles(f"{folder}/a.txt").read_block(f"{folder}/a.txt", 0).documents
    for source in (JsonLines(f"{folder}/a.jsonl"), ParquetFiles(f"{folder}/a.parquet")):
        assert source.read_block(f"{folder}/a.{source.spec.partition(':')[0]}", 0).documents == (
            expected
        )


@given(st.lists(st.sampled_from(["", "a", "bb", "ccc" * 9]), min_size=1), st.integers(1, 40))
def test_blocks_of_any_size_hold_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], block_bytes: int
) -> None:
    file = tmp_path_factory.mktemp("json") / "a.jsonl"
    file.write_bytes(b"\n".join(json_lines([text]).strip() for text in texts))
    source = JsonLines(str(file), block_bytes=block_bytes)
    found = [source.read_block(str(file), block) for block in range(source.most_shards)]
    assert [t for block in found if block for t in block.documents] == [t for t in texts if t]


def test_a_field_and_a_column_are_chosen_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(["a text"], field="the body"))
    assert read(parse_source(f"jsonl:{tmp_path}/*.jsonl#the body")) == ["a text"]
    pq.write_table(pa.table({"text": [1], "the body": ["a text"]}), tmp_path / "a.parquet")
    assert read(parse_source(f"parquet:{tmp_path}/*.parquet#the body")) == ["a text"]


@pytest.mark.parametrize(
    "kind",
    [pa.large_string(), pa.binary(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_text_columns_of_every_type_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"text": pa.array(TEXTS).cast(kind)}), tmp_path / "a.parquet")
    assert read(ParquetFiles(f"{tmp_path}/a.parquet", block_bytes=BLOCK)) == TEXTS


def test_the_footer_of_a_file_of_many_row_groups_is_read_once(
    gcs: Emulator, gs_folder: StoragePath, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet", row_group_size=10)
    upload(tmp_path / "a.parquet", gs_folder / "a.parquet")
    source = ParquetFiles(f"{gs_folder}/a.parquet")
    assert source.most_shards == len(TEXTS) // 10
    gcs.requests.clear()
    assert read(source) == TEXTS
    assert len(gcs.requests) <= source.most_shards  # for the texts alone


def test_several_frames_and_padding_are_one_file(tmp_path: Path) -> None:
    half = len(content := json_lines(TEXTS)) // 2
    parts = content[:half], content[half:]
    (tmp_path / "a.jsonl.gz").write_bytes(b"".join(map(gzip.compress, parts)) + bytes(100_000))
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    frames = zstandard.compress(parts[0]) + skippable + zstandard.compress(parts[1])
    (tmp_path / "a.jsonl.zst").write_bytes(frames)
    for suffix in ("gz", "zst"):
        assert read(JsonLines(f"{tmp_path}/a.jsonl.{suffix}", block_bytes=BLOCK), 3) != []
        assert read(JsonLines(f"{tmp_path}/a.jsonl.{suffix}", block_bytes=BLOCK)) == TEXTS


# --- Broken records and files -----------------------------------------------------------------

BAD_LINES = {
    b'{"text": "a" ': "not JSON",
    b'["a"]': "a list",
    b'{"body": "a"}': "'text'.*'body'",
    b'{"text": null}': "null",
    b'{"text": ["a"]}': "a list",
    b'{"text": "\xff"}': "0xff",
    b'{"text": "\\ud800"}': "surrogate",
    b"[" * 100_000: "JSON",
    b"1" * 5_000: "JSON",
}


@pytest.mark.parametrize(("line", "problem"), BAD_LINES.items(), ids=BAD_LINES.values())
def test_a_broken_line_is_named_or_skipped_and_counted(
    tmp_path: Path, line: bytes, problem: str
) -> None:
    good = json_lines(TEXTS).splitlines()
    content = b"\n".join([*good[:100], b"", line, *good[100:]])
    for suffix, compress in COMPRESS.items():
        name = f"a.jsonl{suffix}"
        (tmp_path / name).write_bytes(compress(content))
        with pytest.raises(UserError, match=rf"{name}, line 102: .*{problem}.*--on-error"):
            read(JsonLines(f"{tmp_path}/{name}", block_bytes=BLOCK))
        source = JsonLines(f"{tmp_path}/{name}", "skip", block_bytes=BLOCK)
        assert sorted(read(source, 3)) == sorted(TEXTS)
        assert broken(source, 3) == broken(source) == 1
        assert files_damaged(source, 3) == 0
        assert f"{name}, line 102: " in source.count_broken(0, 1).first


def test_a_wrong_field_is_an_error_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(TEXTS))
    with pytest.raises(UserError, match=r"a\.jsonl, line 1: .*'body'.*'id', 'text'"):
        parse_source(f"jsonl:{tmp_path}/a.jsonl#body")
    write_parquet(tmp_path / "a.parquet", TEXTS)
    with pytest.raises(UserError, match=r"a\.parquet: .*'body'.*'id', 'text'"):
        parse_source(f"parquet:{tmp_path}/a.parquet#body")
    with pytest.raises(UserError, match=r"a\.parquet: .*'id' is int64"):
        parse_source(f"parquet:{tmp_path}/a.parquet#id")


def test_broken_records_at_the_start_do_not_hide_the_size_of_the_text(tmp_path: Path) -> None:
    """The size decides how many shards there are."""
    (tmp_path / "a.jsonl").write_bytes(json_lines(TEXTS))
    good = JsonLines(f"{tmp_path}/a.jsonl", block_bytes=BLOCK)
    bad = b'{"body": "no text"}\n' * (3 * BLOCK // 20)
    (tmp_path / "b.jsonl").write_bytes(bad + json_lines(TEXTS))
    (tmp_path / "c.jsonl").write_bytes(20 * bad)
    broken = JsonLines(f"{tmp_path}/b.jsonl", "skip", block_bytes=BLOCK)
    assert good.text_bytes <= broken.text_bytes <= good.text_bytes + 2 * len(bad)
    only_broken = JsonLines(f"{tmp_path}/c.jsonl", "skip", block_bytes=BLOCK)
    assert only_broken.text_bytes == 20 * len(bad)


def test_a_corpus_of_broken_records_is_an_error_that_names_the_first(
    tmp_path: Path, tokenizer: SentencePieceTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with the name of another field."""
    (tmp_path / "a.jsonl").write_bytes(json_lines(TEXTS))
    words = [f"--task=jsonl:{tmp_path}/a.jsonl#body", "--on-error=skip", f"--out={tmp_path}/new"]
    prepare = ["prepare", *words, f"--vocabulary={tokenizer.path}", "--workers=1"]
    for command in (["vocab", *words], prepare):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert f"{len(TEXTS)} " in error
        assert f"{tmp_path}/a.jsonl, line 1: no field 'body'" in error


@pytest.mark.parametrize("kind", ["text", "jsonl", "parquet"])
def test_a_glob_without_files_is_an_error(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UserError, match=r"'.*\*\.x'"):
        parse_source(f"{kind}:{tmp_path}/*.x")


@pytest.mark.slow
def test_a_file_that_is_one_line_is_not_read_into_memory(tmp_path: Path) -> None:
    """As one JSON array is, a common mistake."""
    file = tmp_path / "a.jsonl"
    with file.open("wb") as writer:
        for _ in range(LONGEST_LINE // (1 << 20) + 8):
            writer.write(b"[" + b" " * ((1 << 20) - 1))
        writer.write(b"\n" + json_lines(["good"]))
    with pytest.raises(UserError, match=r"line 1: .*64 MiB"):
        JsonLines(str(file))
    source = JsonLines(str(file), "skip")
    assert read(source) == ["good"]
    assert broken(source) == 1


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "no such format"])
def test_a_damaged_file_is_read_up_to_the_damage(
    tmp_path: Path, kind: str, suffix: str, damage: str, shards: int
) -> None:
    noise = random.Random(0)  # so that the compressed file has several chunks
    texts = [f"{noise.randbytes(400).hex()}\nline {n}" for n in range(1000)]
    content = "\n\n".join(texts).encode() if kind == "txt" else json_lines(texts)
    packed = bytearray(COMPRESS[f".{suffix}"](content))
    if damage == "truncated":
        packed = packed[:-20]
    elif damage == "changed":
        packed[len(packed) // 2] ^= 0xFF
    else:
        packed = bytearray(b"plain text")
    file = tmp_path / f"a.{kind}.{suffix}"
    file.write_bytes(packed)
    source_kind = {"txt": TextFiles, "jsonl": JsonLines}[kind]
    # A change can also give other text, which is then not JSON.
    problem = "corrupt .*copy it again" if damage != "changed" else "(?:corrupt|not JSON|.*UTF-8) "
    with pytest.raises(UserError, match=rf"a\.{kind}\.{suffix}, line \d+: {problem}"):
        read(source_kind(str(file), block_bytes=20 * BLOCK), shards)
    source = source_kind(str(file), "skip", block_bytes=20 * BLOCK)
    found = read(source, shards)
    assert broken(source, shards) == broken(source) >= 1
    assert files_damaged(source, shards) == files_damaged(source, 1)
    assert files_damaged(source, 1) == 1 or damage == "changed"
    assert sorted(found) == sorted(read(source))
    if damage == "no such format":
        assert found == []
    else:
        assert len(set(texts) & set(found)) > (800 if damage == "truncated" else 300)


def test_broken_rows_are_named_or_skipped_and_counted(tmp_path: Path) -> None:
    values = [text.encode() for text in TEXTS]
    write_parquet(tmp_path / "a.parquet", [*values[:99], None, b"\xff", *values[99:]], pa.binary())
    with pytest.raises(UserError, match=r"a\.parquet, row 100: .*null.*--on-error"):
        read(ParquetFiles(f"{tmp_path}/a.parquet", block_bytes=BLOCK))
    source = ParquetFiles(f"{tmp_path}/a.parquet", "skip", block_bytes=BLOCK)
    assert sorted(read(source, 3)) == sorted(TEXTS)
    assert broken(source, 3) == 2
    assert "a.parquet, row 100: " in source.count_broken(0, 1).first


@pytest.mark.parametrize("shards", [1, 3])
def test_broken_parquet_files_are_named_or_skipped_and_counted(tmp_path: Path, shards: int) -> None:
    write_parquet(tmp_path / "a.parquet", TEXTS)
    intact = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(intact[:-100])
    (tmp_path / "c.parquet").touch()
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(1)
    begin, size = group.dictionary_page_offset, group.total_compressed_size
    middle, end = begin + size // 2, begin + size
    damaged = intact[:middle] + bytes(end - middle) + intact[end:]
    (tmp_path / "d.parquet").write_bytes(damaged)
    with pytest.raises(UserError, match=r"b\.parquet: not a Parquet file"):
        ParquetFiles(f"{tmp_path}/*.parquet")
    with pytest.raises(UserError, match=r"d\.parquet, row \d+: corrupt .*row group 2"):
        read(ParquetFiles(f"{tmp_path}/d.parquet", block_bytes=BLOCK), shards)
    source = ParquetFiles(f"{tmp_path}/*.parquet", "skip", block_bytes=BLOCK)
    found = read(source, shards)
    assert set(found) == set(TEXTS)
    assert 240 + 240 - 77 <= len(found) < 480
    assert broken(source, shards) == files_damaged(source, shards) == 2
    assert "b.parquet: " in source.count_broken(0, shards).first


def test_a_column_is_not_confused_with_a_nested_field(tmp_path: Path) -> None:
    nested = pa.array([{"text": f"{text} of a struct"} for text in TEXTS])
    pq.write_table(pa.table({"of.text": TEXTS, "text": TEXTS, "x": nested}), tmp_path / "a.parquet")
    for column in ("of.text", "text"):
        assert read(ParquetFiles(f"{tmp_path}/a.parquet#{column}")) == TEXTS
    with pytest.raises(UserError, match=r"a\.parquet: no column 'x\.text'"):
        ParquetFiles(f"{tmp_path}/a.parquet#x.text")
    pq.write_table(pa.table({"x.text": TEXTS, "x": nested}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet: .*'x\.text'"):
        ParquetFiles(f"{tmp_path}/b.parquet#x.text")


# --- Commands ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_text_json_lines_and_parquet_give_the_same_sequences(
    tmp_path: Path, tokenizer: SentencePieceTokenizer
) -> None:
    texts = documents(900)
    files_of(tmp_path, texts)
    specs = {"text": "a.txt", "jsonl": "a.jsonl.zst", "parquet": "a.parquet#text"}
    found = []
    for kind, name in specs.items():
        task = f"{kind}:{tmp_path}/{name} + 2 * builtin:20"
        config = PrepareConfig(task, tokenizer.path, length=32, cleaning=("merge_short_lines",))
        prepare(config, tmp_path / kind, worker_count=1)
        splits = ("train", "validation")
        found.append([read_sequences(tmp_path / kind, split).tolist() for split in splits])
    assert found[0] == found[1] == found[2]
    assert found[0][1]


@pytest.mark.slow
def test_a_mixture_on_object_storage_gives_the_bytes_of_local_files(
    gcs: Emulator,
    gs_folder: StoragePath,
    tmp_path: Path,
    tokenizer: SentencePieceTokenizer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number in range(3):
        content = COMPRESS[".zst"](json_lines(documents(200, number), field="body"))
        (tmp_path / f"{number}.jsonl.zst").write_bytes(content)
        write_parquet(tmp_path / f"{number}.parquet", documents(300, 10 + number))
    for file in sorted(tmp_path.iterdir()):
        upload(file, gs_folder / file.name)
    for folder in (tmp_path, gs_folder):
        words = [f"--task=jsonl:{folder}/*.jsonl.zst#body + 2 * parquet:{folder}/*.parquet"]
        words += [f"--vocabulary={tokenizer.path}", "--workers=1", "--length=32", "--shards=3"]
        gcs.requests.clear()
        words += ["--deduplicate=exact", "--on-error=skip"]
        assert main(["prepare", *words, f"--out={folder}/rows"]) == 0
    # 33 and 50 for three files each. A request for each block, row group, or file of a glob and job
    # would be hundreds.
    for kind, most in (("jsonl", 45), ("parquet", 65)):
        assert sum(f".{kind}" in each for each in gcs.requests) <= most
    local = {path.name: path.read_bytes() for path in (tmp_path / "rows").iterdir()}
    remote = {path.name: path.read_bytes() for path in (gs_folder / "rows").iterdir()}
    here, there = str(tmp_path).encode(), str(gs_folder).encode()
    local["index.json"] = local["index.json"].replace(here, there)
    assert remote == local
    assert len(remote) == 3 + 3
    capsys.readouterr()
    assert main(["data", f"{gs_folder}/rows"]) == 0
    card = capsys.readouterr().out
    assert f"jsonl:{gs_folder}/*.jsonl.zst#body" in card
    assert "1  [CLS] " in card


def test_what_is_skipped_is_printed_and_in_the_index(
    tmp_path: Path, tokenizer: SentencePieceTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines([*TEXTS[:5], None, None, *TEXTS[5:]]))
    words = [f"--task=2 * jsonl:{tmp_path}/a.jsonl + builtin:20", "--workers=1", "--length=32"]
    words += [f"--vocabulary={tokenizer.path}", "--cleaning=none"]
    assert main(["prepare", *words, f"--out={tmp_path}/stopped"]) == 2
    assert f"{tmp_path}/a.jsonl, line 6: " in capsys.readouterr().err
    assert not (tmp_path / "stopped").exists()
    assert main(["prepare", *words, "--on-error=skip", f"--out={tmp_path}/rows"]) == 0
    assert f"broken records or files skipped: 2, first {tmp_path}/a.jsonl, line 6: " in (
        capsys.readouterr().out
    )
    records, builtin = token_shards.read_index(tmp_path / "rows").sources
    assert (records.broken, builtin.broken) == (2, 0)
    assert (records.damaged, records.passes, builtin.passes) == (0, 2, 1)
    assert records.documents == 2 * sum(not is_held_out(text) for text in TEXTS)

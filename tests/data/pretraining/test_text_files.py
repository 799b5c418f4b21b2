"""Text files are read in blocks; the blocks hold every document exactly once."""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupe_jax.data.pretraining.text_files import match_files, read_block
from tupe_jax.utils.errors import UserError


def read_all(file: Path, block_bytes: int) -> list[str]:
    documents, block = [], 0
    while (found := read_block(str(file), block, block_bytes)) is not None:
        documents += found
        block += 1
    return documents


def expected(text: str) -> list[str]:
    documents = re.split(r"\n(?:[ \t\r]*\n)+", f"\n{text}\n")
    lines = ([line.strip() for line in document.split("\n")] for document in documents)
    joined = ("\n".join(line for line in document if line) for document in lines)
    return [document for document in joined if document]


texts = st.lists(st.sampled_from(["a", "bb ccc", "é", " ", "\n", "\n\n", "\r\n"])).map("".join)


@given(texts, st.integers(1, 12))
def test_blocks_of_any_size_hold_every_document_once(
    tmp_path_factory: pytest.TempPathFactory, text: str, block_bytes: int
) -> None:
    file = tmp_path_factory.mktemp("text") / "a.txt"
    file.write_bytes(text.encode())
    assert read_all(file, block_bytes) == expected(text)


def test_gzipped_files_read_the_same(tmp_path: Path) -> None:
    text = "\n\n".join(f"document {n}\nwith two lines" for n in range(300))
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert read_all(tmp_path / "a.txt.gz", 1000) == read_all(tmp_path / "a.txt", 1000)
    # Blocks can be read in any order, also backwards.
    for block in (5, 2, 3):
        plain = read_block(str(tmp_path / "a.txt"), block, 1000)
        assert read_block(str(tmp_path / "a.txt.gz"), block, 1000) == plain != []


@pytest.mark.parametrize("name", ["bad.txt", "bad.txt.gz"])
def test_broken_utf8_is_an_error_naming_file_and_line(tmp_path: Path, name: str) -> None:
    lines = [b"good line"] * 40
    lines[30] = b"caf\xe9 au lait"
    content = b"\n\n".join(lines)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(UserError, match=rf"{name}, line 61: byte 0xe9 is not UTF-8"):
        read_all(tmp_path / name, 100)


def test_a_truncated_gzip_file_is_an_error(tmp_path: Path) -> None:
    content = gzip.compress(b"".join(b"line %d\n\n" % n for n in range(1000)))
    (tmp_path / "cut.gz").write_bytes(content[:-100])
    with pytest.raises(UserError, match=r"cut.gz: broken gzip file"):
        read_all(tmp_path / "cut.gz", 1 << 20)
    (tmp_path / "none.gz").write_bytes(b"plain text")
    with pytest.raises(UserError, match=r"none.gz: broken gzip file"):
        read_all(tmp_path / "none.gz", 1 << 20)


@pytest.mark.parametrize("name", ["gone.txt", "gone.txt.gz"])
def test_a_file_deleted_while_it_is_read_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    content = b"a line\n\n" * 100
    file.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert read_block(str(file), 0, 100)
    file.unlink()
    with pytest.raises(UserError, match=rf"{name}: cannot be read \(No such file"):
        read_block(str(file), 1, 100)


def test_a_glob_without_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no file matches .*\*\.txt'"):
        match_files(f"{tmp_path}/*.txt")
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt").touch()
    with pytest.raises(UserError, match=r"a.txt: empty, and so is every other file"):
        match_files(f"{tmp_path}/*.txt")
    (tmp_path / "c.txt").write_text("text")
    assert [Path(file).name for file in match_files(f"{tmp_path}/*.txt")] == [
        "a.txt",
        "b.txt",
        "c.txt",
    ]

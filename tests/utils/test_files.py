"""Files that are there whole or not at all."""

import pytest

from tupe_jax.utils.files import atomic_file


def test_a_file_that_fails_leaves_the_old_one(tmp_path):
    file = tmp_path / "table.md"
    file.write_text("old")
    with pytest.raises(TypeError), atomic_file(file) as unfinished:
        unfinished.write_text(None)
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]
    assert file.read_text() == "old"


def test_the_last_of_two_writers_wins(tmp_path):
    """As two shards of a study that end at the same time; on two machines they may be one pid."""
    file = tmp_path / "table.md"
    with atomic_file(file) as one:
        with atomic_file(file) as other:
            one.write_text("one")
            other.write_text("other")
        assert file.read_text() == "other"
    assert file.read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]

"""Storage is measured with files that do not stay."""

import pytest

from tupe_jax.rehearsal.storage_speed import measure_storage
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path


def test_nothing_is_left_behind(tmp_path):
    speed = measure_storage(Path(tmp_path) / "runs" / "new")
    assert 0 < speed.read_seconds < 10
    assert speed.read_bandwidth > 0
    assert speed.write_bandwidth > 0
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_stays_as_it_was(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    measure_storage(Path(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        measure_storage(Path(tmp_path) / "file" / "run")

"""`--shard=I/N`."""

import pytest

from tupe_jax.run.shard import WorkShard
from tupe_jax.utils.errors import UserError


def test_a_shard_has_a_folder_of_its_own(tmp_path):
    assert WorkShard.parse("2/8") == WorkShard(2, 8)
    assert WorkShard.parse("2/8").folder(tmp_path) == tmp_path / "shard-2-of-8"
    assert WorkShard.parse("0/1").folder(tmp_path) == tmp_path


@pytest.mark.parametrize("text", ["4/4", "1", "a/2", "-1/2", "0/0", "1/2/3"])
def test_shards_are_counted_from_0(text):
    with pytest.raises(UserError, match=f"--shard={text}"):
        WorkShard.parse(text)

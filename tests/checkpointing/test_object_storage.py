"""Checkpoints on object storage."""

import pytest

from tests.checkpointing.checkpoints import abstract, assert_same_bits, open_at, saved, small_state

# Orbax abandons the reads that were still in progress when another one failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_leftovers_of_a_killed_save_are_removed_before_the_folder_is_listed(gcs, gs_folder):
    """With its last object the folder disappears, and listing it would fail."""
    folder = str(gs_folder).removeprefix("gs://runs/")
    gcs.write(f"{folder}/1.orbax-checkpoint-tmp-7/state/x", b"")
    gcs.write(f"{folder}/2/state/x", b"")  # without commit_success.txt
    checkpoints = open_at(gs_folder)
    assert not [name for name in gcs.names() if name.startswith(folder)]
    assert checkpoints.restore(abstract(small_state(0))) is None


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flip a bit", "delete"])
def test_a_damaged_checkpoint_is_set_aside(gcs, gs_folder, damage):
    saved(gs_folder, [1, 2])
    prefix = str(gs_folder / "2").removeprefix("gs://runs/")
    data = [name for name in gcs.names() if name.startswith(f"{prefix}/state/ocdbt.process_0/d/")]
    largest = max(data, key=lambda name: len(gcs.read(name)))
    if damage == "delete":
        (gs_folder / "2" / largest.removeprefix(f"{prefix}/")).unlink()
    else:
        content = bytearray(gcs.read(largest))
        content[len(content) // 2] ^= 1
        gcs.write(largest, bytes(content))
    checkpoints = open_at(gs_folder)
    restored = checkpoints.restore(abstract(small_state(0)))
    assert restored.step == 1
    assert_same_bits(restored.state, small_state(1))
    assert sorted(path.name for path in gs_folder.iterdir()) == ["1", "2.damaged"]

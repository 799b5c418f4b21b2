"""Opening a work directory."""

from concurrent.futures import ThreadPoolExecutor

from tupe_jax.distributed.process_group import SINGLE_PROCESS
from tupe_jax.run.workdir import open_workdir


def test_shards_of_a_study_may_start_in_a_folder_at_the_same_time(tmp_path):
    def start(attempt):
        open_workdir(tmp_path / str(attempt // 4), SINGLE_PROCESS)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(400)))
    assert len(list(tmp_path.iterdir())) == 100
    assert not list(tmp_path.glob("*/.*")), "nothing is left behind"

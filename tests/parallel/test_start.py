"""How a process learns its place among others."""

import pytest

from tupe_jax.errors import UserError
from tupe_jax.parallel.meeting import Place
from tupe_jax.parallel.start import Wish, find_place

SLURM = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_NODELIST": "node[003-006]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
}


@pytest.fixture
def environment(monkeypatch):
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", *SLURM):
        monkeypatch.delenv(name, raising=False)
    return lambda **values: [monkeypatch.setenv(name, value) for name, value in values.items()]


def test_alone_when_nobody_says_otherwise(environment):
    assert find_place(Wish(), 1.0) is None
    assert find_place(Wish("host:1", 1, 0), 1.0) is None


def test_flags_come_before_variables(environment):
    environment(JAX_COORDINATOR_ADDRESS="a:1", JAX_NUM_PROCESSES="8", JAX_PROCESS_ID="5")
    assert find_place(Wish(), 1.0) == Place("a:1", 8, 5)
    assert find_place(Wish("b:2", None, 0), 1.0) == Place("b:2", 8, 0)


def test_slurm_tells_through_jax(environment):
    environment(**SLURM)
    place = find_place(Wish(), 1.0)
    assert (place.host, place.count, place.index, place.cluster) == ("node003", 4, 2, "slurm")
    environment(SLURM_NTASKS="1", SLURM_PROCID="0")
    assert find_place(Wish(), 1.0) is None


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish("host:1", 4), ["--process or JAX_PROCESS_ID", "needs"]),
        (Wish(process=1), ["--coordinator", "--processes"]),
        (Wish("host", 4, 1), ["'host' is not host:port"]),
        (Wish("host:99999", 4, 1), ["'host:99999' is not host:port"]),
        (Wish("host:1", 4, 4), ["no process 4 among 4", "0 to 3"]),
    ],
)
def test_half_a_place_is_refused(wish, words, environment):
    with pytest.raises(UserError) as error:
        find_place(wish, 1.0)
    for word in words:
        assert word in str(error.value)


def test_a_variable_that_is_no_number(environment):
    environment(JAX_NUM_PROCESSES="many")
    with pytest.raises(UserError, match="JAX_NUM_PROCESSES='many'"):
        find_place(Wish(), 1.0)

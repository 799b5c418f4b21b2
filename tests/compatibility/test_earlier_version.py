"""Today's code computes what commit 3ad3653 computed, reads what it wrote, and keeps its names.

One module, so that pytest-xdist makes the runs once, in one worker.
"""

import json
from pathlib import Path

import pytest

from tests.compatibility import names
from tests.compatibility.replaying import replay

pytestmark = pytest.mark.slow
NAMES = json.loads(names.GOLDEN.read_text())
TOLERANCE = {"rel": 1e-4, "abs": 1e-5}
"""Where `machine` differs: weights differed by up to 1.2e-7 after 12 steps (runs.py)."""


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """The folder in which today's code repeated the runs; it began with the fixtures."""
    folder = tmp_path_factory.mktemp("compatibility")
    replay(folder)
    return folder


@pytest.fixture(scope="module")
def today(replayed):
    return json.loads((replayed / "results.json").read_text())


@pytest.fixture(scope="module")
def recorded():
    return json.loads(Path(__file__).with_name("results.json").read_text())


@pytest.fixture(scope="module")
def found_names(replayed):
    return names.all_names(replayed)


@pytest.fixture(scope="module")
def same_bits(recorded, today):
    """Whether this machine computes the same bits as the one that wrote the fixtures."""
    return recorded["machine"] == today["machine"]


def assert_same_arrays(found, wanted, same_bits):
    assert found.keys() == wanted.keys()
    if same_bits:
        assert [name for name in wanted if found[name] != wanted[name]] == []
    for name, array in wanted.items():
        assert found[name]["shape"] == array["shape"], name
        assert found[name]["dtype"] == array["dtype"], name
        assert found[name]["values"] == pytest.approx(array["values"], **TOLERANCE), name


def assert_same_metrics(found, wanted, same_bits):
    if same_bits:
        assert found == wanted
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, **TOLERANCE)


def assert_same_run(found, wanted, same_bits):
    assert_same_metrics(found["metrics"], wanted["metrics"], same_bits)
    assert_same_arrays(found["arrays"], wanted["arrays"], same_bits)


def test_twelve_steps_of_tupe_r_tiny_give_the_same_metrics_and_arrays(today, recorded, same_bits):
    same_processor = recorded["processor"] == today["processor"]
    assert_same_run(today["pinned"], recorded["pinned"], same_bits and same_processor)


def test_its_training_tokens_are_the_same(today, recorded):
    assert today["pinned_data"] == recorded["pinned_data"]


def test_a_checkpoint_is_resumed_to_the_same_end(today, recorded, same_bits):
    assert_same_run(today["small"], recorded["small"], same_bits)


def test_an_exported_model_computes_the_same(today, recorded, same_bits):
    assert_same_arrays(today["exported"], recorded["exported"], same_bits)


def test_prepared_data_trains_the_same_model(today, recorded, same_bits):
    assert_same_run(today["on_prepared"], recorded["small"], same_bits)


def test_preparing_again_gives_the_same_tokens(today, recorded):
    assert today["prepared_today"] == today["prepared"] == recorded["prepared"]


@pytest.mark.parametrize("kind", NAMES)
def test_no_name_vanishes_and_none_appears_unnoticed(kind, found_names):
    here, listed = set(found_names.get(kind, [])), set(NAMES[kind])
    assert here == listed, (
        f"{kind}: vanished {sorted(listed - here)}, appeared {sorted(here - listed)}"
    )


def test_the_list_has_every_kind_of_name(found_names):
    assert found_names.keys() == NAMES.keys()

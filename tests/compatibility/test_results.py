"""Today's code computes what commit 3ad3653 computed, and reads what it wrote."""

import pytest

TOLERANCE = {"rel": 1e-4, "abs": 1e-5}
"""Where `machine` differs: weights differed by up to 1.2e-7 after 12 steps (runs.py)."""


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
    assert_same_run(today["pinned"], recorded["pinned"], same_bits)


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

"""The five kinds of heads, on matrices made to be of one kind."""

import numpy as np
import pytest

from tests.lab import matrices
from tupe_jax.lab.head_kinds import KINDS, count_kinds, kind_of, kinds_of, reach


def gaussian(n, width):
    """A band whose width is a share of the length."""
    return matrices.attenuated(n, left=0.5 / (width * n) ** 2)


def noisy(matrix, seed=0):
    noise = np.random.default_rng(seed).uniform(0.5, 1.5, matrix.shape)
    return matrices.rows_sum_to_one(matrix * noise)


MADE = {
    "global": [matrices.uniform, lambda n: np.roll(np.eye(n), n // 2, axis=1)],
    "local": [np.eye, matrices.attenuated, lambda n: gaussian(n, 0.05)],
    "broad": [lambda n: gaussian(n, 0.15), lambda n: gaussian(n, 0.25)],
    "previous": [matrices.previous_token, matrices.causal, lambda n: np.exp(-matrices.offsets(n))],
    "next": [matrices.next_token, lambda n: matrices.causal(n)[::-1, ::-1]],
}


@pytest.mark.parametrize("n", [16, 64, 127])
@pytest.mark.parametrize("kind", KINDS)
def test_heads_made_to_be_of_a_kind_are_of_it(kind, n):
    for make in MADE[kind]:
        head = matrices.rows_sum_to_one(make(n))
        assert kind_of(head) == kind
        assert kind_of(noisy(head)) == kind
        mirrored = {"previous": "next", "next": "previous"}.get(kind, kind)
        assert kind_of(head[::-1, ::-1]) == mirrored


def test_reach_is_relative_to_flat_attention():
    assert reach(matrices.uniform(37)) == pytest.approx(1)
    assert reach(np.eye(37)) == 0
    assert reach(matrices.previous_token(10)) == pytest.approx(9 / 10 / 3.3)


def test_heads_are_counted_by_kind():
    heads = [[matrices.uniform(16), np.eye(16)], [matrices.causal(16), np.eye(16)]]
    kinds = kinds_of(np.array(heads, np.float32))
    assert kinds == [["global", "local"], ["previous", "local"]]
    assert count_kinds(kinds) == {"global": 1, "local": 2, "broad": 0, "previous": 1, "next": 0}

"""Metrics of attention matrices: published values, loops that follow the definitions, limits."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lab import matrices
from tupe_jax.lab import (
    METRICS,
    direction,
    effective_rank,
    entropy,
    locality,
    mirror_symmetry,
    monotonicity,
    symmetry,
    translation_invariance,
)
from tupe_jax.utils.errors import UserError

LENGTHS = (3, 4, 7, 20, 33)


# ---- straightforward implementations


def pairs(n):
    return [(i, k) for i in range(n) for k in range(1, min(i, n - 1 - i) + 1)]


def locality_by_loop(m):
    n = len(m)
    return sum(m[i, j] / 2 ** abs(i - j) for i in range(n) for j in range(n)) / n


def symmetry_by_loop(m):
    n = len(m)
    pooled = []
    for i in range(n):
        differences = [abs(m[i, i - k] - m[i, i + k]) for k in range(1, min(i, n - 1 - i) + 1)]
        if differences:
            low, high = min(differences), max(differences)
            pooled += [(d - low) / (high - low) if high > low else 0.0 for d in differences]
    return 1 - sum(pooled) / len(pooled)


def mirror_symmetry_by_loop(m):
    apart = sum(abs(m[i, i - k] - m[i, i + k]) for i, k in pairs(len(m)))
    return 1 - apart / sum(m[i, i - k] + m[i, i + k] for i, k in pairs(len(m)))


def direction_by_loop(m):
    right, left = np.triu(m, 1).sum(), np.tril(m, -1).sum()
    return (right - left) / (right + left)


def monotonicity_by_loop(m):
    n, rises, falls = len(m), 0.0, 0.0
    for i in range(n):
        right, left = m[i, i:], m[i, i::-1]
        for side in (right, left):
            for nearer, farther in itertools.pairwise(side):
                rises += max(farther - nearer, 0)
                falls += max(nearer - farther, 0)
    return falls / (falls + rises)


def entropy_by_loop(m):
    return -sum(w * np.log(w) for row in m for w in row) / len(m)


def translation_invariance_by_loop(m):
    n = len(m)
    fitted = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            fitted[i, j] = np.mean(np.diag(m, j - i))
    return 1 - ((m - fitted) ** 2).sum() / ((m - m.mean()) ** 2).sum()


def effective_rank_by_loop(m):
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(m @ m.T), 0))
    shares = values / values.sum()
    return np.exp(-sum(s * np.log(s) for s in shares if s > 0))


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("n", LENGTHS)
def test_random_matrices_have_the_values_of_the_definition(name, n):
    # The loop for the rank goes by the squares of the singular values: half of the digits are lost.
    tolerance = 1e-6 if name == "effective_rank" else 1e-12
    for seed in range(5):
        matrix = matrices.random_weights(n, seed)
        assert METRICS[name](matrix) == pytest.approx(
            globals()[f"{name}_by_loop"](matrix), rel=0, abs=tolerance
        )


# ---- the published values


@pytest.mark.parametrize(
    ("matrix", "expected_locality", "expected_symmetry"),
    [
        (matrices.uniform(20), 0.140, 1.000),
        (matrices.uniform(128), 0.023, 1.000),
        (matrices.previous_token(20), 0.525, 0.822),
        (matrices.causal(20), 0.290, 1.000),
        (matrices.attenuated(20), 0.681, 1.000),
        (matrices.attenuated(128), 0.671, 1.000),
    ],
)
def test_locality_and_symmetry_have_their_published_values(
    matrix, expected_locality, expected_symmetry
):
    assert locality(matrix) == pytest.approx(expected_locality, abs=5e-4)
    assert symmetry(matrix) == pytest.approx(expected_symmetry, abs=5e-4)


def test_the_published_symmetry_of_a_long_previous_token_head():
    assert symmetry(matrices.previous_token(128)) == pytest.approx(0.969, abs=5e-4)


# ---- what each can see


def test_mirror_symmetry_sees_what_the_published_symmetry_does_not():
    for one_sided in (matrices.causal(20), matrices.previous_token(20), matrices.next_token(20)):
        assert mirror_symmetry(one_sided) == pytest.approx(0, abs=1e-12)
    for two_sided in (matrices.uniform(20), matrices.attenuated(20), np.eye(20)):
        assert mirror_symmetry(two_sided) == pytest.approx(1, abs=1e-12)
    skewed = matrices.attenuated(20, left=0.1, right=2.0)
    assert 0.1 < mirror_symmetry(skewed) < 0.5


def test_what_float32_rounds_off_is_no_asymmetry():
    """Ranks would otherwise tell apart two encodings that are both wholly symmetric."""
    for decay in (0.02, 2.0):
        exact = matrices.attenuated(63, left=decay, right=decay)
        rounded = exact.astype(np.float32) * (1 + np.float32(2e-7) * np.sign(np.arange(63) - 31))
        assert mirror_symmetry(rounded.astype(np.float32)) == 1
        assert mirror_symmetry(exact.astype(np.float32) * (1 + 1e-4 * (np.arange(63) > 31))) < 1


@pytest.mark.parametrize("name", [name for name in METRICS if name != "effective_rank"])
def test_a_matrix_that_is_not_finite_has_no_number(name):
    batch = np.stack([matrices.uniform(5), np.full((5, 5), np.nan)])
    for of in (batch, jnp.asarray(batch)):
        fine, broken = np.asarray(METRICS[name].batched(of))
        assert np.isfinite(fine)
        assert np.isnan(broken)


def test_direction_shows_the_side():
    assert direction(matrices.previous_token(20)) == -1
    assert direction(matrices.next_token(20)) == 1
    assert direction(matrices.attenuated(20)) == pytest.approx(0, abs=1e-12)
    assert direction(np.eye(20)) == 0


def test_monotonicity_sees_whether_weights_fall_with_distance():
    assert monotonicity(matrices.attenuated(20, 0.1, 2.0)) == 1
    assert monotonicity(matrices.uniform(20)) == 1
    assert monotonicity(matrices.rows_sum_to_one(abs(matrices.offsets(20)) + 1.0)) == 0
    assert monotonicity(matrices.previous_token(64)) == pytest.approx(0.5, abs=0.01)
    assert monotonicity(matrices.random_weights(64)) == pytest.approx(0.5, abs=0.05)


def test_entropy_counts_the_positions_that_share_the_weight():
    assert entropy(matrices.uniform(20)) == pytest.approx(np.log(20))
    assert entropy(matrices.previous_token(20)) == 0
    two_each = matrices.rows_sum_to_one(np.eye(20) + np.roll(np.eye(20), 1, axis=1))
    assert np.exp(entropy(two_each)) == pytest.approx(2)


def test_translation_invariance_is_that_of_toeplitz_matrices():
    bias = np.random.default_rng(0).standard_normal(39)[matrices.offsets(20) + 19]
    assert translation_invariance(bias) == pytest.approx(1)
    assert translation_invariance(matrices.uniform(20)) == 1
    assert translation_invariance(bias.T[::-1]) < 0.3
    assert translation_invariance(matrices.random_weights(64)) == pytest.approx(2 / 64, abs=0.02)
    assert 0.9 < translation_invariance(matrices.attenuated(64)) < 1


def test_effective_rank_counts_the_patterns_of_rows():
    assert effective_rank(matrices.uniform(20)) == pytest.approx(1)
    assert effective_rank(np.eye(20)) == pytest.approx(20)
    blocks = np.kron(np.eye(4), np.full((5, 5), 0.2))
    assert effective_rank(blocks) == pytest.approx(4)


# ---- numpy and JAX, one and many


@pytest.mark.parametrize("name", METRICS)
def test_many_matrices_at_once_under_jit_are_the_same_as_one_by_one(name):
    batch = np.stack([matrices.random_weights(9, seed) for seed in range(6)]).reshape(2, 3, 9, 9)
    expected = [[METRICS[name](matrix) for matrix in row] for row in batch]
    np.testing.assert_allclose(METRICS[name].batched(batch), expected, rtol=1e-12)
    in_jax = jax.jit(METRICS[name].batched)(jnp.asarray(batch, jnp.float32))
    assert in_jax.dtype == jnp.float32
    np.testing.assert_allclose(in_jax, expected, rtol=1e-4, atol=1e-5)


def test_rounding_is_not_taken_for_structure():
    noise = 1 + 1e-6 * (np.random.default_rng(0).random((20, 20)) - 0.5)
    almost_even = (matrices.uniform(20) * noise).astype(np.float32)
    assert symmetry(almost_even) == 1
    assert monotonicity(almost_even) == 1
    assert translation_invariance(almost_even) == 1
    # In float64 the same differences are no rounding.
    assert symmetry(almost_even.astype(np.float64)) < 0.9


def test_biases_of_1e_6_are_symmetric_here_and_not_by_the_released_rule():
    """Rounding is that of the type: float64 weights are treated as by the released code."""
    weights = np.exp(1e-6 * np.random.default_rng(0).standard_normal((64, 64)))
    rounded = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    assert symmetry(rounded) == 1
    assert symmetry(rounded.astype(np.float64)) == pytest.approx(0.64, abs=0.01)


def test_locality_has_a_gradient():
    logits = jnp.zeros((8, 8))
    gradient = jax.grad(lambda x: locality.batched(jax.nn.softmax(x)))(logits)
    assert (np.diag(gradient) > 0).all()
    assert gradient[0, 7] < 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.ones((4, 5)), r"at least 3 .*\[4, 5\]"),
        (np.ones((2, 2)), r"at least 3 positions"),
        (np.ones((3, 4, 4)), r"\[3, 4, 4\].* symmetry\.batched"),
        (np.full((4, 4), np.nan), "finite numbers"),
        ([["a", "b"], ["c", "d"]], "finite numbers"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_rejected(wrong, message):
    with pytest.raises(UserError, match=message):
        symmetry(wrong)

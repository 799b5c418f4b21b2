"""Attention matrices whose properties are known."""

import numpy as np


def rows_sum_to_one(matrix):
    return matrix / matrix.sum(-1, keepdims=True)


def offsets(n):
    """The matrix of j - i."""
    return np.arange(n)[None, :] - np.arange(n)[:, None]


def uniform(n):
    return np.full((n, n), 1 / n)


def previous_token(n):
    """Position 0, which has none before it, attends to itself."""
    matrix = np.eye(n, k=-1)
    matrix[0, 0] = 1
    return matrix


def next_token(n):
    return previous_token(n)[::-1, ::-1]


def causal(n):
    return rows_sum_to_one(np.tri(n))


def attenuated(n, left=0.5, right=None):
    """Chen et al.'s encoding, as weights."""
    d = offsets(n)
    w = np.where(d < 0, left, left if right is None else right)
    return rows_sum_to_one(np.exp(-w * d**2.0))


def random_weights(n, seed=0):
    return rows_sum_to_one(np.random.default_rng(seed).random((n, n)))

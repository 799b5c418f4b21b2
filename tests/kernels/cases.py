"""Inputs of attention, and gradients by every input."""

import jax
import jax.numpy as jnp
import numpy as np

SEED = jnp.uint32(7)


def numbers(shape, seed, dtype="float32"):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def is_token(B, S):
    """The last sequence is half padding; of three, the second is all padding."""
    is_token_BxS = np.ones((B, S), bool)
    is_token_BxS[-1, S // 2 :] = False
    if B > 2:
        is_token_BxS[-2] = False
    return jnp.asarray(is_token_BxS)


def qkv(B, S, H, d, dtype="float32"):
    return [numbers((B, S, H, d), seed, dtype) for seed in range(3)]


def output_and_gradients(attend, *inputs):
    """Of attend(*inputs), for some gradient of the output; compiled."""

    @jax.jit
    def run(*inputs):
        out, pull_back = jax.vjp(attend, *inputs)
        return out, pull_back(numbers(out.shape, 3, out.dtype))

    return run(*inputs)


def largest_difference(ours, expected):
    """In units of the largest entry, over all arrays of two trees."""
    ours, expected = jax.tree.leaves(ours), jax.tree.leaves(expected)
    assert [x.shape for x in ours] == [x.shape for x in expected]
    pairs = [
        (np.asarray(x, np.float64), np.asarray(y, np.float64))
        for x, y in zip(ours, expected, strict=True)
    ]
    assert all(np.isfinite(x).all() for x, _ in pairs)
    return max(np.abs(x - y).max() / np.abs(y).max() for x, y in pairs)

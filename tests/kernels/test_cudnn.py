"""What surrounds cuDNN's attention; XLA's, which takes the same arguments, stands in for it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.cases import largest_difference, numbers, output_and_gradients, qkv
from tupe_jax.kernels.cudnn import cudnn_attention
from tupe_jax.kernels.reference import attention
from tupe_jax.model.encoder import REMAT_POLICIES

B, S, H, d = 3, 12, 2, 8
PADDING = {
    "none": [],
    "right": [(1, slice(7, None)), (2, slice(1, None))],
    "left": [(0, slice(0, 3))],
    "a hole": [(1, slice(4, 6)), (2, slice(9, None))],
}
fused = jax.nn.dot_product_attention


def is_token(padding):
    is_token_BxS = np.ones((B, S), bool)
    for place in PADDING[padding]:
        is_token_BxS[place] = False
    return jnp.asarray(is_token_BxS)


@pytest.mark.parametrize("padding", PADDING)
def test_padding_anywhere_gets_no_weight(padding, monkeypatch):
    def by_xla(*arrays, implementation, **settings):
        assert implementation == "cudnn"
        return fused(*arrays, implementation="xla", **settings)

    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    inputs = *qkv(B, S, H, d), numbers((H, S, S), 4)
    rest = is_token(padding), None
    ours = output_and_gradients(lambda *x: cudnn_attention(*x, *rest, scale=0.3), *inputs)
    expected = output_and_gradients(lambda *x: attention(*x, *rest, scale=0.3, rate=0.0), *inputs)
    assert largest_difference(ours, expected) < 1e-5


@pytest.mark.parametrize("padding", PADDING)
def test_cudnn_gets_batches_padded_at_the_end(padding, monkeypatch):
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda q, *_, **__: jnp.zeros_like(q))
    attend = jax.jit(partial(cudnn_attention, scale=0.3))
    out = attend(*qkv(B, S, H, d), None, is_token(padding), None)
    assert (not out.any()) == (padding in ("none", "right"))


def test_no_scores_are_kept_for_padding_elsewhere(monkeypatch):
    """Not even under a policy that keeps the results of matrix products."""
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda q, *_, **__: q)

    def backward(*arrays):
        def attend(*arrays):
            return cudnn_attention(*arrays, is_token("a hole"), None, scale=0.3)

        return jax.vjp(jax.checkpoint(attend, policy=REMAT_POLICIES["none"]), *arrays)[1]

    kept = jax.tree.leaves(jax.eval_shape(backward, *qkv(B, S, H, d), numbers((H, S, S), 4)))
    assert kept
    assert all(array.size < B * H * S * S for array in kept)

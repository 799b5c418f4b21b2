"""The small functions every layer is made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tupe_jax.model.layers import gelu

X = np.linspace(-6, 6, 481).astype(np.float32)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 2**-8)])
def test_gelu_is_the_exact_one(dtype, tolerance):
    x = jnp.asarray(X, dtype)
    exact = jax.nn.gelu(x.astype(jnp.float32), approximate=False)
    assert gelu(x).dtype == x.dtype
    error = jnp.abs(gelu(x).astype(jnp.float32) - exact)
    # Where x is far below zero, erf is 1 to the last bit of float32, and the tail is lost.
    assert (error <= tolerance * jnp.abs(exact) + 2e-6).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 2**-7)])
def test_gelu_has_the_gradient_of_the_exact_one(dtype, tolerance):
    x = jnp.asarray(X, dtype)

    def slope(function, x):
        return jax.vmap(jax.grad(lambda x: function(x).astype(jnp.float32)))(x)

    exact = slope(lambda x: jax.nn.gelu(x, approximate=False), x.astype(jnp.float32))
    np.testing.assert_allclose(
        slope(gelu, x).astype(jnp.float32), exact, rtol=tolerance, atol=tolerance
    )


def test_gelu_keeps_its_input_only():
    x = jnp.zeros((8, 8), jnp.bfloat16)
    _, backward = jax.eval_shape(lambda x: jax.vjp(gelu, x), x)
    kept = jax.tree.leaves(backward)
    assert [(k.shape, k.dtype) for k in kept] == [((8, 8), jnp.bfloat16)]

"""The real TPU compiler takes the kernels, and sees no more traffic than we count."""

from functools import partial

import jax
import pytest
from jax.sharding import SingleDeviceSharding

from tests.kernels import traffic
from tests.kernels.test_multi_block import bias_of
from tupe_jax.aot.targets import parse_target
from tupe_jax.kernels import reference
from tupe_jax.kernels.block_sizes import long_block
from tupe_jax.kernels.multi_block import multi_block_attention
from tupe_jax.kernels.single_block import single_block_attention
from tupe_jax.kernels.window import pairs_computed, pairs_in_window

pytest.importorskip("libtpu")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimised")]

BASE = {"length": 512, "num_heads": 12, "head_size": 64}
SIZES = {"itemsize": 2, "bias_itemsize": 4}


def compiled(attend, target, batch, length, num_heads, head_size, bias=None):
    """Forward and backward of one layer's attention in bfloat16."""
    sharding = SingleDeviceSharding(parse_target(target).devices()[0])

    def array(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def step(q, k, v, bias, is_token_BxS, seed, g):
        def from_features(q, k, v, bias):
            q, k, v = (x.reshape(batch, length, num_heads, head_size) for x in (q, k, v))
            out = attend(q, k, v, bias, is_token_BxS, seed, scale=head_size**-0.5, rate=0.1)
            return out.reshape(batch, length, -1)

        out, pull_back = jax.vjp(from_features, q, k, v, bias)
        return out, pull_back(g)

    tokens = array((batch, length, num_heads * head_size), "bfloat16")
    if bias is None:
        bias = jax.ShapeDtypeStruct((num_heads, length, length), "float32")
    bias = jax.tree.map(lambda x: array(x.shape, x.dtype), bias)
    inputs = [tokens] * 3, bias, array((batch, length), "bool"), array((), "uint32"), tokens
    return jax.jit(step).lower(*inputs[0], *inputs[1:]).compile()


@pytest.mark.parametrize("target", ["v5p:1x1x1", "v6e:1x1"])
def test_base_shapes_compile(target):
    compiled(single_block_attention, target, 2, **BASE)


def test_bfloat16_compiles_where_full_precision_is_asked_for():
    """A measurement asks for it, whatever the model computes in."""
    with jax.default_matmul_precision("highest"):
        compiled(single_block_attention, "v5e:1x1", 2, **BASE)


def test_on_v5e_einsum_moves_three_times_the_bytes_that_the_kernel_declares():
    """Of a kernel XLA counts what the kernel declares, and copies before and after it."""
    kernel = compiled(single_block_attention, "v5e:1x1", 8, **BASE)
    einsum = compiled(reference.attention, "v5e:1x1", 8, **BASE)
    seen, by_einsum = (c.cost_analysis()["bytes accessed"] for c in (kernel, einsum))
    counted = traffic.kernel_bytes(8, **BASE, **SIZES)
    # The compiler may fetch the forward kernel's inputs ahead; of a copy it counts both ends, when
    # it starts and when it is done.
    tokens, bias = 8 * 512 * 768 * 2, 12 * 512 * 512 * 4
    assert 0.98 * counted < seen < 1.02 * counted + 4 * (3 * tokens + bias)
    assert by_einsum > 3 * seen
    assert traffic.einsum_bytes(8, **BASE, **SIZES) > 3 * counted
    assert kernel.memory_analysis().temp_size_in_bytes < 2**20


@pytest.mark.parametrize("target", ["v5e:1x1", "v6e:1x1"])
def test_a_window_needs_memory_of_the_window(target):
    """At 8,192 tokens: a few arrays of the tokens' size, and three blocks of keys per query."""
    S, H, d, window = 8192, 12, 64, 128
    bias = jax.eval_shape(lambda: bias_of("tupe_r", S, H, d))
    attend = partial(multi_block_attention, window=window)
    program = compiled(attend, target, 1, S, H, d, bias=bias)
    assert program.memory_analysis().temp_size_in_bytes < 10 * (S * H * d * 2)
    pairs = pairs_computed(S, long_block(window), window)
    assert pairs < 3 * pairs_in_window(S, window) < S * S / 20


def test_long_rows_compile_for_v5e():
    bias = jax.eval_shape(lambda: bias_of("tupe_r", 2048, 2, 64))
    compiled(multi_block_attention, "v5e:1x1", 1, 2048, 2, 64, bias=bias)

"""What a layer keeps for the backward pass where layers are scanned, as on accelerators.

Counted from traced programs: nothing is compiled or computed.
"""

from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.extend.core import jaxprs_in_params
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from tests.model.helpers import small_config, with_position
from tupe_jax.kernels import block_sizes
from tupe_jax.model.encoder import Encoder

B, S = 7, 512  # no size of a weight is a multiple of 7; 512 tokens need no padding to tiles
L, D, F, H = 5, 64, 96, 2
BF16, F32 = 2, 4

# Bytes per token of the layer's input, the sums before its two norms, query, key, value, the output
# of attention, and the MLP's hidden activations.
POST_NORM = BF16 * (7 * D + F)
SCORES = F32 * H * S


def config(variant="tupe_r", **settings):
    sizes = {"num_layers": L, "hidden_size": D, "mlp_size": F, "num_heads": H}
    small = small_config(variant, **sizes, dtype="bfloat16", **settings)
    return with_position(small, max_length=S)


def on(platform):
    device = AbstractDevice(device_kind="", num_cores=None, platform=platform)
    return use_abstract_mesh(AbstractMesh((1,), ("data",), abstract_device=device))


def encoder(config):
    """The encoder as a function, and the shapes of its two arguments."""
    graph, params = nnx.split(nnx.eval_shape(lambda: Encoder(config, rngs=nnx.Rngs(0))))

    def encode(params, tokens):
        return nnx.merge(graph, params)(tokens, key=jax.random.key(1))

    return encode, params, jax.ShapeDtypeStruct((B, S), jnp.int32)


def kept_bytes(config, platform):
    """Per token and layer."""
    with on(platform):
        encode, params, tokens = encoder(config)
        backward = jax.eval_shape(
            lambda params, tokens: jax.vjp(lambda p: encode(p, tokens), params)[1], params, tokens
        )
    arrays = jax.tree.leaves(backward)
    of_layers = [x for x in arrays if x.shape[:1] == (L,) and x.size % (L * B) == 0]
    return sum(x.size * x.dtype.itemsize for x in of_layers) / (L * B * S)


@pytest.mark.parametrize(
    ("platform", "settings", "expected"),
    [
        ("tpu", {}, POST_NORM),
        # The sum after the MLP is the next layer's input.
        ("tpu", {"pre_layer_norm": True}, POST_NORM - BF16 * D),
        ("tpu", {"norm": "rms_norm", "activation": "gelu_tanh"}, POST_NORM),
        ("tpu", {"gated_mlp": True, "activation": "silu"}, POST_NORM + BF16 * F),
        # Two float32 numbers per query and head.
        ("gpu", {}, POST_NORM + 2 * F32 * H),
        # The sum of all terms of the scores, not each term.
        ("tpu", {"variant": "deberta"}, POST_NORM + SCORES),
    ],
    ids=str,
)
def test_results_of_elementwise_functions_are_not_kept(platform, settings, expected):
    assert kept_bytes(config(**settings), platform) == expected


def test_the_kernel_for_long_sequences_keeps_two_numbers_per_query(monkeypatch):
    monkeypatch.setattr(block_sizes, "_LONGEST_SINGLE_BLOCK", 0)
    assert kept_bytes(config(), "tpu") == POST_NORM + 2 * F32 * H


@pytest.mark.parametrize(
    ("remat", "by_kernel", "by_xla"),
    [
        ("none", POST_NORM, POST_NORM + SCORES),
        ("dots", POST_NORM - BF16 * D, POST_NORM + SCORES),
        ("projections", POST_NORM - BF16 * D, POST_NORM - BF16 * D),
        ("full", BF16 * D, BF16 * D),
    ],
)
def test_remat_policies_differ_in_what_they_keep(remat, by_kernel, by_xla):
    assert kept_bytes(config(remat=remat), "tpu") == by_kernel
    assert kept_bytes(config(remat=remat, attention_implementation="xla"), "tpu") == by_xla


def operations(jaxpr):
    """How often each primitive, or kernel, appears in a program."""
    found = Counter()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            found[equation.params["name"]] += 1
            continue
        found[equation.primitive.name] += 1
        for inner in jaxprs_in_params(equation.params):
            found += operations(inner)
    return found


def in_gradient(config, platform):
    with on(platform):
        encode, params, tokens = encoder(config)
        gradient = jax.grad(lambda p, t: encode(p, t).astype(jnp.float32).sum())
        return operations(jax.make_jaxpr(gradient)(params, tokens).jaxpr)


BRANCHES = 2  # each kernel appears compiled, for its platform, and interpreted, for others


@pytest.fixture(scope="module")
def products_without_remat():
    found = in_gradient(config(), "tpu")
    assert found["attention_forward"] == found["attention_backward"] == BRANCHES
    return found["dot_general"]


@pytest.mark.parametrize(
    ("remat", "products"),
    [("dots", 0), ("projections", 0), ("full", 6)],  # query, key, value, output, two of the MLP
)
def test_what_remat_policies_compute_again(remat, products, products_without_remat):
    found = in_gradient(config(remat=remat), "tpu")
    assert found["dot_general"] - products_without_remat == products
    assert found["attention_forward"] == 2 * BRANCHES
    assert found["attention_backward"] == BRANCHES


@pytest.mark.parametrize(
    ("platform", "kernel"), [("tpu", "long_attention_forward"), ("gpu", "gpu_attention_forward")]
)
def test_without_remat_no_kernel_runs_forward_twice(platform, kernel, monkeypatch):
    monkeypatch.setattr(block_sizes, "_LONGEST_SINGLE_BLOCK", 0)
    assert in_gradient(config(), platform)[kernel] == BRANCHES

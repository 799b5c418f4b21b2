"""What a layer keeps for the backward pass where layers are scanned, as on accelerators.

Everything is counted from shapes; nothing is computed or compiled.
"""

from collections import Counter
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.extend.core import jaxprs_in_params
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from tests.model.helpers import small_config, with_position
from tupe_jax.kernels import block_sizes
from tupe_jax.model.encoder import Encoder

B, S = 7, 512  # no size of a weight is a multiple of 7; the length fills every kernel's tiles
L, D, F, H = 5, 64, 96, 2
BF16 = 2
RESIDUAL_STREAM = 3  # the input of a layer, and the sums before its two norms
QKV_AND_OUTPUT = 4


def config(variant="tupe_r", **settings):
    sizes = {"num_layers": L, "hidden_size": D, "mlp_size": F, "num_heads": H}
    return with_position(
        small_config(variant, **sizes, dtype="bfloat16", **settings), max_length=S
    )


def on(platform):
    device = AbstractDevice(device_kind="", num_cores=None, platform=platform)
    return use_abstract_mesh(AbstractMesh((1,), ("data",), abstract_device=device))


def encode_and_params(config):
    graph, params = nnx.split(nnx.eval_shape(lambda: Encoder(config, rngs=nnx.Rngs(0))))
    tokens = jax.ShapeDtypeStruct((B, S), jnp.int32)
    return (
        lambda params, tokens: nnx.merge(graph, params)(tokens, key=jax.random.key(1)),
        params,
        tokens,
    )


def kept_bytes(config, platform):
    """Per token and layer."""
    with on(platform):
        encode, params, tokens = encode_and_params(config)
        backward = jax.eval_shape(
            lambda params, tokens: jax.vjp(lambda p: encode(p, tokens), params)[1], params, tokens
        )
    arrays = jax.tree.leaves(backward)
    of_layers = [x for x in arrays if x.shape[:1] == (L,) and x.size % (L * B) == 0]
    return sum(x.size * x.dtype.itemsize for x in of_layers) / (L * B * S)


POST_NORM = BF16 * ((RESIDUAL_STREAM + QKV_AND_OUTPUT) * D + F)


@pytest.mark.parametrize(
    ("platform", "settings", "expected"),
    [
        ("tpu", {}, POST_NORM),
        # The sum after the MLP is the next layer's input.
        ("tpu", {"pre_layer_norm": True}, POST_NORM - BF16 * D),
        ("tpu", {"norm": "rms_norm", "activation": "gelu_tanh"}, POST_NORM),
        ("tpu", {"gated_mlp": True, "activation": "silu"}, POST_NORM + BF16 * F),
        ("tpu", {"variant": "rope"}, POST_NORM),
        # The kernel for GPUs also keeps two float32 numbers per query and head.
        ("gpu", {}, POST_NORM + H * 2 * 4),
        # XLA keeps the scores in float32, and nothing that they are added from.
        ("tpu", {"attention_implementation": "xla"}, POST_NORM + H * S * 4),
        ("tpu", {"variant": "deberta"}, POST_NORM + H * S * 4),
        ("tpu", {"variant": "shaw"}, POST_NORM + H * S * 4),
    ],
    ids=str,
)
def test_elementwise_results_are_not_kept(platform, settings, expected):
    assert kept_bytes(config(**settings), platform) == expected


def test_many_blocks_keep_two_numbers_per_query(monkeypatch):
    monkeypatch.setattr(block_sizes, "_LONGEST_SINGLE_BLOCK", 0)
    assert kept_bytes(config(), "tpu") == POST_NORM + H * 2 * 4


def operations(jaxpr):
    """How often each primitive, or kernel, appears in a program."""
    found = Counter()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "pallas_call":
            found[equation.params["name"]] += 1
            continue
        found[name] += 1
        for inner in jaxprs_in_params(equation.params):
            found += operations(inner)
    return found


@cache
def differentiated(config, platform):
    with on(platform):
        encode, params, tokens = encode_and_params(config)
        gradient = jax.grad(lambda p, t: encode(p, t).astype(jnp.float32).sum())
        return operations(jax.make_jaxpr(gradient)(params, tokens).jaxpr)


@pytest.mark.parametrize(
    ("remat", "products_again", "attention_again"),
    [("none", 0, False), ("dots", 0, True), ("projections", 0, True), ("full", 6, True)],
)
def test_products_that_a_policy_repeats(remat, products_again, attention_again):
    """Of a layer's six: query, key, value, output, and two of the MLP."""
    once = differentiated(config(), "tpu")
    found = differentiated(config(remat=remat), "tpu")
    assert found["dot_general"] - once["dot_general"] == products_again
    platforms = 2  # the kernel is compiled for TPUs and interpreted elsewhere
    assert found["attention_forward"] == platforms * (1 + attention_again)
    assert found["attention_backward"] == platforms


@pytest.mark.parametrize(
    ("platform", "kernel"), [("tpu", "long_attention_forward"), ("gpu", "gpu_attention_forward")]
)
def test_other_kernels_run_forward_once(platform, kernel, monkeypatch):
    monkeypatch.setattr(block_sizes, "_LONGEST_SINGLE_BLOCK", 0)
    assert differentiated.__wrapped__(config(), platform)[kernel] == 2

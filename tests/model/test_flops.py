"""FLOPs by formula are those of the matrix products that the model does."""

import math

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.extend.core import jaxprs_in_params

from tests.model.helpers import VARIANTS, small_config, with_position
from tupe_jax.config.schema import POSITION_VARIANTS, PositionConfig, model_config
from tupe_jax.kernels.window import pairs_in_window
from tupe_jax.model.flops import (
    attention_flops_per_token,
    flops_per_token,
    recomputed_flops_per_token,
    training_flops_per_token,
)
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.positions import RELATIVE, Encoding, Weight
from tupe_jax.model.positions.distances import by_distance_to_pairs, distances
from tupe_jax.model.positions.encoding import Entry

OF_POSITIONS = {
    **dict.fromkeys(POSITION_VARIANTS, 0),
    "tupe_a": 1_615_334_400,
    "tupe_r": 1_615_334_400,
    "tupe_a_tie_cls": 1_610_612_736,
    "bert_a_d": 1_207_959_552,
    "shaw": 2_471_485_243_392,
    "transformer_xl": 2_485_966_602_240,
    "deberta": 4_950_218_244_096,
    "deberta_released": 4_944_782_426_112,
}
"""From the shapes of the terms, for a base model and 256 sequences of 512 tokens."""


def traced_flops(jaxpr):
    """Two per multiply-add of every dot_general, loops and inner functions included."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            summed = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * summed * math.prod(equation.outvars[0].aval.shape)
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(map(traced_flops, jaxprs_in_params(equation.params)))
    return total


def forward(config, rows, length, scored):
    """The forward pass as a function of abstract arrays, and those arrays."""
    graph, state = nnx.split(nnx.eval_shape(lambda: MaskedLM(config, rngs=nnx.Rngs(0))))

    def run(state, tokens_BxS, positions_BxM):
        return nnx.merge(graph, state)(tokens_BxS, positions_BxM=positions_BxM)

    tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    positions = jax.ShapeDtypeStruct((rows, scored), jnp.int32)
    return run, (state, tokens, positions)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_matrix_product_is_counted(variant):
    config = small_config(variant)
    rows, length, scored = 5, 12, 3
    run, arrays = forward(config, rows, length, scored)
    counted = flops_per_token(config, length, scored / length, rows=rows) * rows * length
    assert counted == pytest.approx(traced_flops(jax.make_jaxpr(run)(*arrays).jaxpr), rel=1e-12)


@pytest.mark.parametrize(("name", "flops"), OF_POSITIONS.items())
def test_flops_of_position_terms(name, flops):
    position = POSITION_VARIANTS.get(name, PositionConfig("none", name, untie_cls=False))
    config = model_config("base", position)
    without = with_position(config, absolute="none", relative="none", untie_cls=False)
    counted, rest = (flops_per_token(c, 512, 0.0, rows=256) for c in (config, without))
    assert (counted - rest) * 256 * 512 == flops


def scores_by_product(weights, q):
    r_Nxd = weights["r"][distances(q.shape[1])]
    return jnp.einsum("bihd,nd->bhin", q, r_Nxd)


def scores_by_sum(weights, q):
    r_Nxd = weights["r"][distances(q.shape[1])]
    return (q.transpose(0, 2, 1, 3)[..., None, :] * r_Nxd).sum(-1)


def scores_by_loop(weights, q):
    r_Nxd = weights["r"][distances(q.shape[1])]
    return jnp.moveaxis(jax.lax.map(lambda r_d: jnp.einsum("bihd,d->bhi", q, r_d), r_Nxd), 0, -1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scores", [scores_by_product, scores_by_sum, scores_by_loop])
def test_content_terms_of_a_user_are_counted(scores, dtype, monkeypatch):
    def mine(config):
        return Encoding(
            layer_weights={"r": Weight((64, config.head_size), (None, None))},
            scores=lambda once, weights, q, k: by_distance_to_pairs(scores(weights, q)),
        )

    monkeypatch.setitem(RELATIVE, "mine", Entry(mine, 0))
    shaw = small_config("shaw", dtype=dtype)
    config = with_position(shaw, relative="mine")
    assert flops_per_token(config, 12, 0.25, rows=5) == flops_per_token(shaw, 12, 0.25, rows=5)
    assert attention_flops_per_token(config, 12) == attention_flops_per_token(shaw, 12)


@pytest.mark.slow
def test_xla_counts_the_same_but_for_what_is_no_matrix_product(optimised):
    """XLA counts softmax, LayerNorm and GELU as well: some 9 % forward, 5 % in training."""
    config = model_config("tiny", "tupe_r", num_layers=1, vocab_size=1000, layer_loop="unroll")
    rows, length, scored = 4, 64, 10
    run, arrays = forward(config, rows, length, scored)

    def loss(*arrays):
        return jax.nn.log_softmax(run(*arrays))[..., 0].mean()

    def excess(function, flops_per_token):
        ours = flops_per_token(config, length, scored / length, rows=rows) * rows * length
        return jax.jit(function).lower(*arrays).compile().cost_analysis()["flops"] / ours - 1

    assert 0 < excess(run, flops_per_token) < 0.1
    assert 0 < excess(jax.grad(loss), training_flops_per_token) < 0.06


def test_base_model_in_round_numbers():
    """Twice the weights of the layers per token, plus attention, plus the head where it scores."""
    config = model_config("base", "tupe_a")
    D, S, V = 768, 512, 32768
    weights_of_layers = 12 * 12 * D * D
    expected = 2 * weights_of_layers + 12 * 4 * S * D + 0.15 * 2 * D * (D + V)
    assert flops_per_token(config, S, 0.15, rows=256) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("global_every", [0, 3])
def test_where_all_layers_have_a_window_only_its_pairs_of_positions_count(global_every):
    S, window = 512, 16

    def flops(position):
        settings = {"attention_window": window, "attention_global_every": global_every}
        config = model_config("tiny", position, **settings)
        return config, flops_per_token(config, S, 0.0, rows=1)

    config, untied = flops("tupe_a")
    D, pairs = config.hidden_size, S * S if global_every else pairs_in_window(S, window)
    # Two projections of positions and of the [CLS] vectors, and the products of p_i and p_j.
    expected = 2 * 2 * (S + 2) * D * D + 2 * pairs * D
    assert (untied - flops("bert_a")[1]) * S == pytest.approx(expected, rel=1e-2)


def test_what_remat_computes_again():
    def again(remat, **settings):
        config = model_config("base", "tupe_r", remat=remat)
        return recomputed_flops_per_token(config, 512, **settings) / config.num_layers

    scores_and_values = 2 * (2 * 512 * 768)
    for by_kernel in (False, True):
        assert again("none", by_kernel=by_kernel) == 0
        assert again("projections", by_kernel=by_kernel) == scores_and_values
    assert again("dots", by_kernel=False) == 0
    assert again("dots", by_kernel=True) == scores_and_values

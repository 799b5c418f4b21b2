"""Each optimizer against an independent form of its rule, on stacked layers and vectors alike.

The released Adam is also tested by the official trajectory.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from optax.contrib import scale_by_muon

from tests.model.helpers import VARIANTS, small_config, spread_model
from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.model.heads import MaskedLM
from tupe_jax.training.optim.optimizer import OPTIMIZERS, decay_mask, make_optimizer
from tupe_jax.training.optim.param_groups import hidden_matrix, is_positional, map_params

RATE = 0.1


@functools.cache
def params_of():
    return nnx.state(spread_model(small_config("tupe_r"), heads={"task": 2}), nnx.Param)


@functools.cache
def abstract_params(variant):
    """Names, axes and shapes only."""
    config = small_config(variant)
    return nnx.state(
        nnx.eval_shape(lambda: MaskedLM(config, rngs=nnx.Rngs(0), classification_heads={"task": 2}))
    )


def gradients_like(params, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda p: jnp.asarray(scale * rng.standard_normal(p.shape), jnp.float32), params
    )


def by_name(tree):
    return {
        ".".join(map(str, path)): np.asarray(param.get_value())
        for path, param in nnx.to_flat_state(tree)
    }


def optimizer_of(name, **settings):
    settings = {"clip_norm": 0.0, **settings}
    return make_optimizer(OptimizerConfig(name=name, **settings), lambda count: RATE)


@functools.cache
def compiled(name, **settings):
    optimizer = optimizer_of(name, **settings)
    return jax.jit(optimizer.init), jax.jit(optimizer.update)


def run(name, params, gradients, **settings):
    """The updates of each step; the parameters stay where they are."""
    init, update = compiled(name, **settings)
    state, updates = init(params), []
    for gradient in gradients:
        step, state = update(gradient, state, params)
        updates.append(by_name(step))
    return updates


def released_adam(params, gradients, beta1, beta2, eps, decay):
    """The released rule, step by step in float64."""
    m = v = 0.0
    for t, gradient in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        step_size = RATE * np.sqrt(1 - beta2**t) / (1 - beta1**t)
        yield -decay * RATE * params - step_size * m / (np.sqrt(v) + eps)


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_released_adam(scale):
    """Small gradients, too: there eps decides."""
    params = params_of()
    gradients = [gradients_like(params, seed, scale) for seed in range(3)]
    ours = run("adam_released", params, gradients, weight_decay=0.1)
    arrays, gradients = by_name(params), [by_name(g) for g in gradients]
    for name, array in arrays.items():
        expected = released_adam(
            array.astype(np.float64),
            [g[name].astype(np.float64) for g in gradients],
            0.9,
            0.999,
            1e-6,
            0.1,
        )
        for step, update in enumerate(expected):
            np.testing.assert_allclose(ours[step][name], update, rtol=1e-4, atol=1e-6, err_msg=name)


def test_released_adam_is_not_the_usual_adam():
    params = params_of()
    gradients = [gradients_like(params, 0, 1e-6)]
    released = run("adam_released", params, gradients, weight_decay=0.0)
    usual = run("adamw", params, gradients, weight_decay=0.0)
    name = "encoder.word_embedding"
    assert np.abs(released[0][name]).max() < 0.2 * np.abs(usual[0][name]).max()


NOT_DECAYED_TUPE_R = {
    "classification_heads.task.output.bias",
    "classification_heads.task.pooler.dense.bias",
    "encoder.embedding_norm.bias",
    "encoder.embedding_norm.scale",
    "encoder.layers.attention.output.bias",
    "encoder.layers.attention.query_key_value.bias",
    "encoder.layers.attention_norm.bias",
    "encoder.layers.attention_norm.scale",
    "encoder.layers.mlp_in.bias",
    "encoder.layers.mlp_norm.bias",
    "encoder.layers.mlp_norm.scale",
    "encoder.layers.mlp_out.bias",
    "encoder.positions.absolute.key_bias",
    "encoder.positions.absolute.norm_bias",
    "encoder.positions.absolute.norm_scale",
    "encoder.positions.absolute.p_theta_1",
    "encoder.positions.absolute.query_bias",
    "encoder.positions.relative.table",
    "masked_word_head.bias",
    "masked_word_head.dense.bias",
    "masked_word_head.norm.bias",
    "masked_word_head.norm.scale",
}


def not_decayed(variant):
    return {
        name
        for name, decayed in by_name(decay_mask(abstract_params(variant))).items()
        if not decayed
    }


def test_what_is_not_decayed():
    assert not_decayed("tupe_r") == NOT_DECAYED_TUPE_R
    in_layers = "encoder.layers.attention.positions.relative"
    assert f"{in_layers}.table" in not_decayed("attenuated_layer_head")
    assert f"{in_layers}.r" not in not_decayed("shaw")
    assert f"{in_layers}.key_kernel" not in not_decayed("deberta")


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_kernels_and_embeddings_are_decayed_in_every_model(variant):
    mask = by_name(decay_mask(abstract_params(variant)))
    for name, decayed in mask.items():
        last = name.split(".")[-1]
        if last.endswith("kernel") or last == "word_embedding":
            assert decayed, name
        if last.endswith(("bias", "scale")) or "theta" in last:
            assert not decayed, name


@pytest.mark.parametrize("name", ["adam_released", "adamw", "muon"])
def test_weight_decay_is_times_the_learning_rate(name):
    """Where the gradient is zero, decay is all that happens."""
    params = params_of()
    zero = jax.tree.map(jnp.zeros_like, params)
    (update,) = run(name, params, [zero], weight_decay=0.2)
    exempt = set() if name == "adam_released" else NOT_DECAYED_TUPE_R
    for array_name, array in by_name(params).items():
        expected = 0 * array if array_name in exempt else -RATE * 0.2 * array
        np.testing.assert_allclose(update[array_name], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_position_factor_multiplies_the_updates_of_positional_parameters_only(name):
    params = params_of()
    gradients = [gradients_like(params, seed) for seed in range(2)]
    plain = run(name, params, gradients, weight_decay=0.1)
    faster = run(name, params, gradients, weight_decay=0.1, position_learning_rate_factor=8.0)
    for before, after in zip(plain, faster, strict=True):
        changed = {n for n in before if not np.array_equal(before[n], after[n])}
        assert changed == {n for n in before if n.startswith("encoder.positions.")}
        for array_name in changed:
            np.testing.assert_allclose(after[array_name], 8 * before[array_name], rtol=1e-6)


def test_positions_of_layers_are_positional_parameters():
    found = by_name(map_params(lambda path, p: is_positional(path), abstract_params("shaw")))
    assert {name for name, positional in found.items() if positional} == {
        "encoder.layers.attention.positions.relative.r"
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_position_factor_adds_no_array_to_the_state(name):
    """A checkpoint has the same arrays with any factor."""

    def arrays(**settings):
        state = jax.eval_shape(optimizer_of(name, **settings).init, params_of())
        return [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(state)]

    assert arrays(position_learning_rate_factor=8.0) == arrays()


def test_adamw_is_optax_adamw():
    params = params_of()
    gradients = [gradients_like(params, seed) for seed in range(3)]
    ours = run("adamw", params, gradients, weight_decay=0.1, beta1=0.8, beta2=0.98, eps=1e-4)
    theirs = optax.adamw(RATE, b1=0.8, b2=0.98, eps=1e-4, weight_decay=0.1, mask=decay_mask)
    state, update = theirs.init(params), jax.jit(theirs.update)
    for step, gradient in enumerate(gradients):
        updates, state = update(gradient, state, params)
        for name, expected in by_name(updates).items():
            np.testing.assert_allclose(ours[step][name], expected, rtol=1e-5, atol=1e-7)


def single_matrices(name, array):
    """A stacked parameter as the separate matrices [inputs, outputs] it consists of."""
    if not name.startswith("encoder.layers."):
        return [array]
    if name.endswith("query_key_value.kernel"):
        return [layer[:, part].reshape(16, 16) for layer in array for part in range(3)]
    if name.endswith("attention.output.kernel"):
        return [layer.reshape(16, 16) for layer in array]
    return list(array)


LAYER_KERNELS = {
    "encoder.layers.attention.query_key_value.kernel": 9,
    "encoder.layers.attention.output.kernel": 3,
    "encoder.layers.mlp_in.kernel": 3,
    "encoder.layers.mlp_out.kernel": 3,
}


def test_lamb_is_optax_lamb_on_every_matrix_of_its_own():
    params = params_of()
    gradients = [gradients_like(params, seed) for seed in range(2)]
    ours = run("lamb", params, gradients, weight_decay=0.1)
    theirs = optax.lamb(RATE, weight_decay=0.1, eps=1e-6)
    gradients, params = [by_name(g) for g in gradients], by_name(params)
    for name, count in {**LAYER_KERNELS, "encoder.word_embedding": 1}.items():
        matrices = single_matrices(name, params[name])
        assert len(matrices) == count
        state = theirs.init(matrices)
        for step, gradient in enumerate(gradients):
            expected, state = theirs.update(single_matrices(name, gradient[name]), state, matrices)
            for mine, other in zip(single_matrices(name, ours[step][name]), expected, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6, err_msg=name)


def test_lamb_lets_biases_leave_zero():
    params = jax.tree.map(lambda p: p * 1e-6, params_of())
    (update,) = run("lamb", params, [gradients_like(params, 0)])
    np.testing.assert_allclose(np.abs(update["masked_word_head.bias"]), RATE, rtol=1e-2)
    assert np.abs(update["encoder.word_embedding"]).max() < 1e-5


def test_muon_orthogonalises_every_matrix_of_its_own():
    params = params_of()
    gradients = [gradients_like(params, seed) for seed in range(2)]
    ours = run("muon", params, gradients)
    theirs = scale_by_muon(beta=0.95)
    params, gradients = by_name(params), [by_name(g) for g in gradients]
    update = jax.jit(theirs.update)
    for name, count in LAYER_KERNELS.items():
        matrices = single_matrices(name, params[name])
        assert len(matrices) == count
        for i, matrix in enumerate(matrices):
            state = theirs.init(matrix)
            for step, gradient in enumerate(gradients):
                orthogonal, state = update(single_matrices(name, gradient[name])[i], state)
                scaled = 0.2 * np.sqrt(max(matrix.shape)) * orthogonal
                np.testing.assert_allclose(
                    single_matrices(name, ours[step][name])[i],
                    -RATE * (scaled + 0.01 * matrix),
                    rtol=1e-3,
                    atol=1e-5,
                )
                singular = np.linalg.svd(orthogonal, compute_uv=False)
                assert 0.5 < np.median(singular) < singular.max() < 1.4
                rms = np.sqrt(np.square(scaled).mean())
                assert 0.15 < rms < 0.25, "as large as a typical update of Adam"


def test_muon_leaves_the_rest_to_adam():
    params = params_of()
    gradients = [gradients_like(params, seed) for seed in range(2)]
    muon = run("muon", params, gradients)
    adam = run("adamw", params, gradients)
    by_muon = {name for name in muon[1] if not np.allclose(muon[1][name], adam[1][name], rtol=1e-5)}
    position_kernels = {f"encoder.positions.absolute.{x}_kernel" for x in ("query", "key")}
    assert by_muon == set(LAYER_KERNELS) | position_kernels


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kernel_of_the_encoder_is_a_matrix_for_muon(variant):
    for path, param in nnx.to_flat_state(abstract_params(variant)):
        is_kernel = path[0] == "encoder" and path[-1].endswith("kernel")
        matrix = hidden_matrix(param)
        assert is_kernel == (matrix is not None), path
        if matrix:  # all axes are used, but for the layers and the three of query, key and value
            rest = set(range(param.ndim)) - {*matrix.inputs, *matrix.outputs}
            assert {param.shape[i] for i in rest} <= {3}


@pytest.mark.parametrize("name", ["adam_released", "muon"])
def test_clipping_comes_first(name):
    """A gradient beyond the limit acts like the same gradient scaled to it."""
    params = params_of()
    gradient = gradients_like(params, 0, 1e-3)
    norm = float(optax.tree.norm(gradient))
    limit = norm / 1000  # small, so that eps makes the scale matter
    scaled = jax.tree.map(lambda g: g * (limit / norm), gradient)
    (clipped,) = run(name, params, [gradient], clip_norm=limit)
    (expected,) = run(name, params, [scaled])
    (free,) = run(name, params, [gradient])
    for array_name, array in expected.items():
        np.testing.assert_allclose(clipped[array_name], array, rtol=1e-3, atol=1e-6)
    bias = "masked_word_head.bias"
    assert not np.allclose(free[bias], clipped[bias], rtol=0.1)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_descends(name):
    params = params_of()
    goal = jax.tree.map(lambda p: 0.5 * p, params)
    optimizer = optimizer_of(name, weight_decay=0.0, clip_norm=1.0)

    def distance(params):
        return optax.tree.norm(optax.tree.sub(params, goal), squared=True)

    @functools.partial(jax.jit, donate_argnames="state")
    def step(params, state):
        updates, state = optimizer.update(jax.grad(distance)(params), state, params)
        return optax.apply_updates(params, jax.tree.map(lambda u: 0.1 * u, updates)), state

    state, before = optimizer.init(params), float(distance(params))
    for _ in range(10):
        params, state = step(params, state)
    assert distance(params) < 0.7 * before


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_moments_know_their_axes(name):
    """So that they can be sharded like their parameters."""
    params = params_of()
    axes = {
        tuple(p.get_metadata("axes")): p.shape for _, p in nnx.to_flat_state(params) if p.ndim > 1
    }
    state = jax.eval_shape(optimizer_of(name).init, params)
    moments = [
        leaf
        for leaf in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, nnx.Variable))
        if isinstance(leaf, nnx.Variable)
    ]
    assert len(moments) >= len(jax.tree.leaves(params))
    found = {tuple(m.get_metadata("axes")) for m in moments}
    assert set(axes) <= found

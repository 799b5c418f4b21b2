"""Replaced-token detection: samples, labels, losses, and real runs of a small ELECTRA."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from flax import nnx

from tests.model.helpers import small_config
from tupe_jax.config.schema import (
    Config,
    DataConfig,
    MeshConfig,
    ObjectiveConfig,
    TrainConfig,
)
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.model.flops import training_flops_per_token
from tupe_jax.model.params import path_names
from tupe_jax.objectives.base import metrics, total_loss
from tupe_jax.objectives.masking import MaskedBatch
from tupe_jax.objectives.registry import make_objective
from tupe_jax.objectives.replaced_token import AreaUnderRoc, Replacement, detection_term
from tupe_jax.tokenizers.sentencepiece import SPECIAL
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.train_state import plan_state
from tupe_jax.training.train_step import make_train_step
from tupe_jax.utils.errors import UserError

ROWS, LENGTH, PAD = 32, 12, SPECIAL.pad_id
MASK = SPECIAL.mask_id
ELECTRA = ObjectiveConfig(
    name="replaced_token",
    mask_rate=0.3,
    replace_by_mask=1.0,
    replace_by_random=0.0,
    generator_size=0.5,
)


def config_of(variant="tupe_r", *, model=None, train=None, **changes):
    return Config(
        model=small_config(
            variant, num_layers=2, **{"dropout": 0, "attention_dropout": 0} | (model or {})
        ),
        objective=dataclasses.replace(ELECTRA, **changes),
        data=DataConfig(length=LENGTH),
        train=TrainConfig(batch_size=ROWS, **(train or {})),
    )


def tokens(seed=0):
    rows = np.random.default_rng(seed).integers(5, 50, (ROWS, LENGTH))
    rows[:, 0] = 1
    rows[3, 6:] = PAD
    return jnp.asarray(rows, jnp.int32)


@functools.cache
def inputs_and_module():
    objective = make_objective(config_of())
    module = built(objective)
    return objective, module, prepared(objective, tokens())


def built(objective):
    return nnx.jit(lambda: objective.build(nnx.Rngs(0)))()


def prepared(objective, tokens):
    return jax.jit(objective.prepare)({"tokens": tokens}, jax.random.key(0))


def terms_of(objective, module, inputs):
    return nnx.jit(lambda module, inputs: objective.terms(module, inputs, None))(module, inputs)


def names_of(module):
    return {".".join(path_names(path)) for path, _ in nnx.to_flat_state(nnx.state(module))}


@pytest.mark.parametrize(("variant", "shared"), [("bert_a", 4), ("tupe_r", 3)])
def test_the_embeddings_are_shared_and_exist_once(variant, shared):
    objective = make_objective(config_of(variant))
    module = nnx.eval_shape(lambda: objective.build(nnx.Rngs(0)))
    generator, discriminator = module.generator.encoder, module.discriminator.encoder
    assert generator.word_embedding is discriminator.word_embedding
    alone = names_of(module.generator)
    in_pair = {name for name in names_of(module) if name.startswith("generator.")}
    # token embedding, scale and bias of its LayerNorm, and positions that are added to it
    assert len(alone) - len(in_pair) == shared
    assert generator.config.hidden_size == 8
    assert generator.config.word_size == discriminator.config.word_size == 16


@pytest.mark.slow
def test_the_networks_may_differ_in_layers_and_positions():
    objective = make_objective(config_of("tupe_r", generator_position="bert_a", generator_layers=1))
    generator, discriminator = objective.networks()
    assert generator.position.absolute == "added"
    assert discriminator.position.absolute == "untied"
    assert generator.position.max_length == discriminator.position.max_length == 20
    assert (generator.num_layers, discriminator.num_layers) == (1, 2)
    module = built(objective)
    terms = terms_of(objective, module, prepared(objective, tokens()))
    assert np.isfinite(terms["generator"].loss + terms["discriminator"].loss)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"generator_size": 0.0}, r"objective\.generator_size=0\.0"),
        ({"generator_size": 0.1}, r"objective\.generator_size=0\.1 gives .* 0 heads"),
        ({"generator_size": 0.7}, r"\b11\b.* 3 heads"),
        ({"generator_layers": -1}, r"objective\.generator_layers=-1"),
        ({"generator_position": "tupe"}, r"objective\.generator_position 'tupe'.*'tupe_"),
        ({"discriminator_weight": 0.0}, r"objective\.discriminator_weight=0\.0"),
        ({"model": {"replaced_token_head": True}}, r"objective\.name=replaced_token"),
    ],
)
def test_wrong_settings_are_refused_with_the_config(change, words):
    with pytest.raises(UserError, match=words) as error:
        config_of(**change)
    assert "\n" not in str(error.value)


def test_only_masked_positions_are_replaced_and_by_samples():
    objective, _, inputs = inputs_and_module()
    logits = np.full((*inputs.masked.positions_BxM.shape, 50), -20.0, np.float32)
    logits[..., PAD] = 20  # by far the likeliest, but it would hide the position
    logits[..., 7] = 0
    replaced = np.asarray(objective.replace_tokens(jnp.asarray(logits), inputs))
    is_masked = np.asarray(inputs.masked.tokens_BxS) == MASK
    assert is_masked.sum() == inputs.masked.weights_BxM.sum() > ROWS
    assert (replaced[is_masked] == 7).all()
    np.testing.assert_array_equal(replaced[~is_masked], np.asarray(tokens())[~is_masked])


def test_a_sample_equal_to_the_original_counts_as_original():
    objective, _, inputs = inputs_and_module()
    is_target = np.arange(50) == np.asarray(inputs.masked.targets_BxM)[..., None]
    certain = jnp.where(is_target, 100.0, 0.0)
    np.testing.assert_array_equal(objective.replace_tokens(certain, inputs), tokens())


def test_samples_follow_the_generators_distribution():
    objective, count, size = make_objective(config_of()), 4000, 9
    logits = np.random.default_rng(1).normal(0, 1.5, size).astype(np.float32)
    logits[PAD] = -np.inf
    masked = MaskedBatch(
        jnp.full((count, 2), MASK),
        jnp.tile(jnp.arange(2), (count, 1)),
        jnp.ones((count, 2), jnp.int32),
        jnp.ones((count, 2)),
    )
    noise = jax.random.key_data(jax.random.split(jax.random.key(3), count))
    inputs = Replacement(masked.tokens_BxS, masked, noise)
    sampled = objective.replace_tokens(jnp.tile(logits, (count, 2, 1)), inputs)
    expected = np.exp(logits[1:]) / np.exp(logits[1:]).sum() * count
    for position in range(2):
        counts = np.bincount(np.asarray(sampled)[:, position], minlength=size)
        assert counts[PAD] == 0
        assert scipy.stats.chisquare(counts[1:], expected).pvalue > 0.001
    assert (sampled[:, 0] == sampled[:, 1]).mean() < 0.5, "positions draw different noise"


def test_samples_do_not_depend_on_the_other_sequences():
    objective, _, inputs = inputs_and_module()
    logits = jax.random.normal(jax.random.key(5), (*inputs.masked.positions_BxM.shape, 50))
    whole = objective.replace_tokens(logits, inputs)
    part = jax.tree.map(lambda x: x[5::8], inputs)
    np.testing.assert_array_equal(objective.replace_tokens(logits[5::8], part), whole[5::8])


@pytest.mark.slow
def test_no_gradient_passes_through_the_samples():
    objective, module, inputs = inputs_and_module()
    graph, params = nnx.split(module)

    @functools.partial(jax.jit, static_argnums=1)
    def gradient(params, term):
        return jax.grad(lambda p: objective.terms(nnx.merge(graph, p), inputs, None)[term].loss)(
            params
        )

    def sizes(term):
        flat = nnx.to_flat_state(gradient(params, term))
        return {path_names(path): float(abs(g[...]).max()) for path, g in flat}

    of_discriminator, of_generator = sizes("discriminator"), sizes("generator")
    assert all(size == 0 for path, size in of_discriminator.items() if path[0] == "generator")
    embedding = ("discriminator", "encoder", "word_embedding")
    assert min(of_discriminator[embedding], of_generator[embedding]) > 0
    trained = {path for path, size in of_generator.items() if size > 0}
    assert {path[0] for path in trained - {embedding}} >= {"generator"}
    head = ("discriminator", "replaced_token_head", "output", "kernel")
    assert of_generator[head] == 0 < of_discriminator[head]


def test_detection_metrics_against_counting():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (6, 9)).astype(np.float32)
    replaced, is_token = rng.random((6, 9)) < 0.3, rng.random((6, 9)) < 0.8
    term = detection_term(jnp.asarray(logits), jnp.asarray(replaced), jnp.asarray(is_token))
    x, y = logits[is_token].astype(np.float64), replaced[is_token]
    probability = 1 / (1 + np.exp(-x))
    loss = -np.log(np.where(y, probability, 1 - probability)).sum()
    np.testing.assert_allclose(term.loss, loss, rtol=1e-5)
    assert term.metrics["accuracy"] == ((x > 0) == y).sum()
    assert term.metrics["replaced"] == y.sum()
    assert term.metrics["precision"].value() == pytest.approx(y[x > 0].mean())
    assert term.metrics["recall"].value() == pytest.approx((x > 0)[y].mean())
    pairs = [(a > b) + 0.5 * (a == b) for a, b in itertools.product(x[y], x[~y])]
    assert term.metrics["auc"].value() == pytest.approx(np.mean(pairs), abs=0.02)


def test_precision_is_zero_while_nothing_is_detected():
    none = jnp.zeros((2, 3), bool)
    term = detection_term(jnp.full((2, 3), -1.0), none, ~none)
    assert term.metrics["precision"].value() == 0
    assert term.metrics["recall"].value() == 0
    assert term.metrics["auc"].value() == 0


def test_the_area_of_batches_is_that_of_all_tokens():
    rng = np.random.default_rng(0)
    logits, replaced = rng.normal(0, 1, (4, 50)).astype(np.float32), rng.random((4, 50)) < 0.2
    logits += replaced
    whole = AreaUnderRoc.of(jnp.asarray(logits), jnp.asarray(replaced), jnp.asarray(~replaced))
    parts = [
        AreaUnderRoc.of(*map(jnp.asarray, (x, r, ~r)))
        for x, r in zip(logits, replaced, strict=True)
    ]
    summed = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), parts)
    assert summed.value() == pytest.approx(float(whole.value()), abs=1e-6)
    assert 0.6 < whole.value() < 0.9


@pytest.mark.slow
def test_padding_is_no_target_of_either_network():
    objective, module, _ = inputs_and_module()
    padded = tokens().at[8:].set(PAD)
    inputs = prepared(objective, padded)
    weights = objective.weights(inputs)
    assert weights["discriminator"] == (padded != PAD).sum()
    alone = jax.tree.map(lambda x: x[:8], inputs)
    whole, part = (terms_of(objective, module, some) for some in (inputs, alone))
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_loss_is_that_of_the_generator_plus_fifty_times_the_discriminators():
    objective, module, inputs = inputs_and_module()
    terms, weights = terms_of(objective, module, inputs), objective.weights(inputs)
    named = metrics(objective, terms, weights)
    expected = named["generator_loss"] + 50 * named["discriminator_loss"]
    np.testing.assert_allclose(named["loss"], expected, rtol=1e-6)
    np.testing.assert_allclose(total_loss(objective, terms, weights), expected, rtol=1e-6)
    assert set(named) == {
        "loss",
        *(f"generator_{name}" for name in ("loss", "accuracy")),
        *(
            f"discriminator_{name}"
            for name in ("loss", "accuracy", "precision", "recall", "replaced", "auc")
        ),
    }


def test_flops_count_both_networks_and_their_heads():
    objective = make_objective(config_of())
    generator, discriminator = objective.networks()
    without_head = dataclasses.replace(discriminator, replaced_token_head=False)
    encoder = training_flops_per_token(without_head, LENGTH, 0.0, rows=ROWS)
    small = training_flops_per_token(generator, LENGTH, ELECTRA.mask_rate, rows=ROWS)
    assert objective.training_flops_per_token() == pytest.approx(encoder + small + 3 * 2 * 16 * 17)


@functools.cache
def step_and_state(accumulate):
    config = config_of(train={"accumulate": accumulate})
    schedule = optax.constant_schedule(1e-2)
    optimizer = make_optimizer(config.optimizer, schedule)
    plan = plan_state(config, make_mesh(MeshConfig()))
    step = make_train_step(config, plan.graph, make_objective(config), optimizer, schedule)
    return jax.jit(lambda state, tokens: step(state, {"tokens": tokens})), plan.create()


@pytest.mark.slow
def test_four_micro_batches_of_8_give_the_step_of_one_of_32():
    (one, a), (four, b) = (
        step(state, tokens()) for step, state in (step_and_state(n) for n in (1, 4))
    )
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, err_msg=name)
    for x, y in zip(jax.tree.leaves(one.params), jax.tree.leaves(four.params), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)

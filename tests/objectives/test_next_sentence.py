"""Masked LM with next-sentence prediction: both losses, segments, wrong combinations."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from tests.model.helpers import small_config
from tupe_jax.config.schema import Config, DataConfig, MeshConfig, ObjectiveConfig, TrainConfig
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.model.flops import training_flops_per_token
from tupe_jax.model.params import path_names
from tupe_jax.objectives.base import metrics
from tupe_jax.objectives.registry import make_objective
from tupe_jax.tokenizers.sentencepiece import CLS_ID, MASK_ID, PAD_ID, SEP_ID
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.train_state import plan_state
from tupe_jax.training.train_step import make_train_step
from tupe_jax.utils.errors import UserError

ROWS, LENGTH = 32, 12


def config_of(variant="tupe_r", *, model=None, packing="pairs", accumulate=1, **objective):
    without_dropout = {"dropout": 0, "attention_dropout": 0, "segments": 2, "num_layers": 2}
    return Config(
        model=small_config(variant, **without_dropout | (model or {})),
        objective=ObjectiveConfig(**{"name": "masked_lm_nsp", "mask_rate": 0.3} | objective),
        data=DataConfig(length=LENGTH, packing=packing),
        train=TrainConfig(batch_size=ROWS, accumulate=accumulate),
    )


def batch():
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 50, (ROWS, LENGTH))
    tokens[:, 0] = CLS_ID
    tokens[:, [5, -1]] = SEP_ID
    segments = np.tile(np.arange(LENGTH) > 5, (ROWS, 1)).astype(np.int32)
    labels = rng.integers(0, 2, ROWS)
    features = {"tokens": tokens, "segments": segments, "is_random_next": labels}
    return {name: jnp.asarray(feature, jnp.int32) for name, feature in features.items()}


@functools.cache
def objective_and_module():
    objective = make_objective(config_of())
    return objective, nnx.jit(lambda: objective.build(nnx.Rngs(0)))()


def prepared(features):
    objective, _ = objective_and_module()
    return jax.jit(objective.prepare)(features, jax.random.key(0))


def terms_of(inputs):
    objective, module = objective_and_module()
    return nnx.jit(lambda module, inputs: objective.terms(module, inputs, None))(module, inputs)


def test_the_loss_is_the_sum_of_both():
    objective, _ = objective_and_module()
    inputs = prepared(batch())
    named = metrics(objective, terms_of(inputs), objective.weights(inputs))
    both = named["masked_lm_loss"] + named["next_sentence_loss"]
    np.testing.assert_allclose(named["loss"], both, rtol=1e-6)
    assert set(named) == {
        "loss",
        *(f"{t}_{m}" for t in ("masked_lm", "next_sentence") for m in ("loss", "accuracy")),
    }
    assert objective.weights(inputs)["next_sentence"] == ROWS


def test_the_loss_and_accuracy_of_next_sentences_against_their_definition():
    _, module = objective_and_module()
    inputs = prepared(batch())
    _, logits = nnx.jit(
        lambda m: m.token_and_next_sentence_logits(inputs.masked.tokens_BxS, inputs.segments_BxS)
    )(module)
    logits, labels = np.asarray(logits, np.float64), np.asarray(inputs.is_random_next_B)
    loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(ROWS), labels]
    term = terms_of(inputs)["next_sentence"]
    np.testing.assert_allclose(term.loss, loss.sum(), rtol=1e-5)
    assert term.metrics["accuracy"] == (logits.argmax(1) == labels).sum()


def test_segments_are_those_of_the_data_even_if_a_separator_is_masked():
    _, module = objective_and_module()
    features = batch()
    encode = nnx.jit(lambda m, tokens, segments: m.encode(tokens, segments_BxS=segments))
    tokens, segments = features["tokens"], features["segments"]
    np.testing.assert_array_equal(encode(module, tokens, segments), encode(module, tokens, None))
    masked = tokens.at[:, 5].set(MASK_ID)
    assert not np.allclose(encode(module, masked, segments), encode(module, masked, None))


def test_examples_that_fill_up_a_batch_do_not_count():
    filled = {name: feature.at[8:].set(PAD_ID) for name, feature in batch().items()}
    objective, _ = objective_and_module()
    inputs = prepared(filled)
    assert objective.weights(inputs)["next_sentence"] == 8
    alone = jax.tree.map(lambda x: x[:8], inputs)
    for a, b in zip(*map(jax.tree.leaves, (terms_of(inputs), terms_of(alone))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_next_sentences_train_the_encoder_the_pooler_and_their_head_only():
    objective, module = objective_and_module()
    inputs = prepared(batch())
    graph, params = nnx.split(module)

    @jax.jit
    def gradient(params):
        def loss(p):
            return objective.terms(nnx.merge(graph, p), inputs, None)["next_sentence"].loss

        return jax.grad(loss)(params)

    sizes = {
        path_names(path): float(abs(g[...]).max())
        for path, g in nnx.to_flat_state(gradient(params))
    }
    for path in (
        ("next_sentence_head", "output", "kernel"),
        ("pooler", "dense", "kernel"),
        ("encoder", "segment_embedding"),
    ):
        assert sizes[path] > 0, path
    assert all(size == 0 for path, size in sizes.items() if path[0] == "masked_word_head")


def test_the_baseline_guesses_by_frequency():
    objective, _ = objective_and_module()
    inputs = jax.device_get(prepared(batch()))
    labels = np.asarray(inputs.is_random_next_B)
    baseline = objective.baseline(np.ones(50, np.int64), [inputs])
    share = max(labels.mean(), 1 - labels.mean())
    assert baseline["next_sentence_accuracy"] == pytest.approx(share)
    parts = baseline["masked_lm_loss"] + baseline["next_sentence_loss"]
    assert baseline["loss"] == pytest.approx(parts)
    assert 0.6 < baseline["next_sentence_loss"] <= np.log(2)


def test_flops_count_the_head_once_per_sequence():
    objective = make_objective(config_of())
    without = dataclasses.replace(*objective.networks(), next_sentence_head=False)
    alone = training_flops_per_token(without, LENGTH, 0.3, rows=ROWS)
    extra = 3 * 2 * 16 * (16 + 2) / LENGTH
    assert objective.training_flops_per_token() == pytest.approx(alone + extra)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"packing": "stream"}, r"objective\.name=masked_lm_nsp .*data\.packing=stream"),
        ({"name": "masked_lm"}, r"data\.packing=pairs .*masked_lm"),
        ({"name": "replaced_token"}, r"data\.packing=pairs .*replaced_token"),
        ({"model": {"next_sentence_head": True, "pooler": True}}, "masked_lm_nsp"),
        ({"model": {"next_sentence_head": True}}, r"model\.pooler"),
    ],
)
def test_wrong_combinations_are_refused_with_the_config(change, words):
    with pytest.raises(UserError, match=words) as error:
        config_of(**change)
    assert "\n" not in str(error.value)


@functools.cache
def step_and_state(accumulate):
    config = config_of(accumulate=accumulate)
    schedule = optax.constant_schedule(1e-2)
    optimizer = make_optimizer(config.optimizer, schedule)
    plan = plan_state(config, make_mesh(MeshConfig()))
    step = make_train_step(config, plan.graph, make_objective(config), optimizer, schedule)
    return jax.jit(step), plan.create()


@pytest.mark.slow
def test_four_micro_batches_of_8_give_the_step_of_one_of_32():
    (one, a), (four, b) = (
        step(state, batch()) for step, state in (step_and_state(n) for n in (1, 4))
    )
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, err_msg=name)
    for x, y in zip(jax.tree.leaves(one.params), jax.tree.leaves(four.params), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)

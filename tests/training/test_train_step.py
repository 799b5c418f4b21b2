"""The train step as a function of arrays."""

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.model.helpers import small_config
from tupe_jax import cli
from tupe_jax.bench import save_speed
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import Config, MeshConfig, ObjectiveConfig, TrainConfig
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.train_state import plan_state
from tupe_jax.training.train_step import lower_train_step, make_train_step


@functools.cache
def step_and_state(accumulate=1, ema=0.0, dropout=0.0):
    config = Config(
        model=small_config("tupe_r", dropout=dropout, attention_dropout=dropout),
        objective=ObjectiveConfig(mask_rate=0.3),
        train=TrainConfig(batch_size=32, accumulate=accumulate, ema_decay=ema),
    )
    schedule = optax.constant_schedule(1e-2)
    optimizer = make_optimizer(config.optimizer, schedule)
    plan = plan_state(config, make_mesh(MeshConfig()))
    step = make_train_step(config, plan.graph, make_objective(config), optimizer, schedule)
    return jax.jit(lambda state, tokens: step(state, {"tokens": tokens})), plan.create()


def tokens(seed=0):
    rows = np.random.default_rng(seed).integers(5, 50, (32, 12))
    rows[:, 0] = 1
    rows[3, 6:] = 0  # rows with fewer scored tokens than others
    return jnp.asarray(rows, jnp.int32)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.slow
def test_accumulated_gradients_are_those_of_the_whole_batch():
    whole, parts = (step_and_state(accumulate=n) for n in (1, 4))
    (one, metrics), (four, others) = (step(state, tokens()) for step, state in (whole, parts))
    for name in ("loss", "accuracy", "grad_norm"):
        np.testing.assert_allclose(metrics[name], others[name], rtol=2e-6)
    for a, b in zip(leaves(one.params), leaves(four.params), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.slow
def test_micro_batches_get_different_dropout():
    step, state = step_and_state(accumulate=2, dropout=0.5)
    same_rows = jnp.repeat(tokens()[:16], 2, axis=0)
    whole, _ = step_and_state(accumulate=1, dropout=0.5)
    assert step(state, same_rows)[1]["loss"] != whole(state, same_rows)[1]["loss"]


@pytest.mark.slow
def test_a_batch_that_is_not_finite_is_skipped_and_counted():
    step, state = step_and_state(ema=0.9)
    broken = tokens().at[5, 5].set(999)  # no such word: its row is NaN
    after, metrics = step(state, broken)
    assert np.isnan(metrics["loss"])
    assert (int(after.step), int(after.skipped), int(after.skipped_in_a_row)) == (1, 1, 1)
    for name in ("params", "opt_state", "ema"):
        for a, b in zip(leaves(getattr(after, name)), leaves(getattr(state, name)), strict=True):
            np.testing.assert_array_equal(a, b)
    healed, metrics = step(after, tokens())
    assert np.isfinite(metrics["loss"])
    assert (int(healed.step), int(healed.skipped), int(healed.skipped_in_a_row)) == (2, 1, 0)
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(leaves(healed.params), leaves(state.params), strict=True)
    )


def test_masks_and_dropout_change_with_the_step_and_only_with_it():
    step, state = step_and_state(dropout=0.1)
    first, again = step(state, tokens())[1], step(state, tokens())[1]
    assert float(first["loss"]) == float(again["loss"])
    later, _ = step(state, tokens().at[0, 1].set(999))  # skipped: the same weights at step 1
    assert float(step(later, tokens())[1]["loss"]) != float(first["loss"])


def averages(decay, params, updates):
    """The averages of a list of weights of which the first are the initial ones, as defined."""
    average = params[0]
    for t, (new, is_update) in enumerate(zip(params[1:], updates, strict=True)):
        d = min(decay, (1 + sum(updates[:t])) / (80 + sum(updates[:t])))
        average = d * average + (1 - d) * new if is_update else average
    return average


@pytest.mark.slow
@pytest.mark.parametrize("decay", [0.03, 0.999])
def test_the_average_follows_the_weights(decay):
    step, state = step_and_state(ema=decay)
    params, updates = [leaves(state.params)[0]], []
    for number in range(6):
        batch = tokens() if number != 2 else tokens().at[5, 5].set(999)  # skipped: no update
        state, _ = step(state, batch)
        params.append(leaves(state.params)[0])
        updates.append(number != 2)
    np.testing.assert_allclose(
        leaves(state.ema)[0], averages(decay, params, updates), rtol=1e-5, atol=1e-7
    )


@pytest.mark.slow
def test_the_average_forgets_the_initial_weights_within_a_few_updates():
    """With a constant decay of 0.999 they would weigh 99 % after ten updates."""
    step, state = step_and_state(ema=0.999)
    initial = state.params
    for _ in range(10):
        state, _ = step(state, tokens())
    away = [
        np.linalg.norm(average - old) / np.linalg.norm(new - old)
        for average, new, old in zip(*map(leaves, (state.ema, state.params, initial)), strict=True)
        if np.linalg.norm(new - old) > 1e-3
    ]
    assert len(away) > 5
    assert min(away) > 0.5


@pytest.mark.slow
def test_training_learns_a_batch_by_heart():
    step, state = step_and_state()
    losses = []
    for _ in range(30):
        state, metrics = step(state, tokens())
        losses.append(float(metrics["loss"]))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.1


@pytest.mark.parametrize("count", [1, 2])
def test_the_state_is_made_with_its_sharding(count):
    _, state = step_and_state(accumulate=count)
    assert all(leaf.committed for leaf in jax.tree.leaves(state.params))


@pytest.mark.slow
def test_bench_reports_the_cost_of_a_save(monkeypatch, capsys):
    monkeypatch.setattr(save_speed, "WINDOW_SECONDS", 0.01)
    small = ["--config.model.hidden_size=16", "--config.train.batch_size=4"]
    assert cli.main(["bench", "checkpoint", "--config=tupe_r:tiny", *small, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["what"] == "checkpoint"
    assert result["tokens_per_second"] == pytest.approx(4 * 64 / result["step_seconds"])
    assert result.keys() >= {"shape", "model_flops_per_second", "fraction_of_matmul_peak"}
    assert result["every"] == (every := 300)  # steps of the tiny recipe
    assert result["blocked_seconds"] > 0
    assert result["share"] == pytest.approx(
        result["extra_seconds"] / (every * result["step_seconds"])
    )


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_on_a_cpu_the_update_is_in_place():
    config = from_config_dict(load_config("tupe_r:tiny", ["--config.model.num_layers=1"]))
    mesh = make_mesh(config.mesh)
    plan = plan_state(config, mesh)
    schedule = optax.constant_schedule(1e-2)
    step = lower_train_step(config, plan, mesh, make_objective(config), schedule).compile()
    table = f"f32[{config.model.vocab_size},{config.model.hidden_size}]"
    copies = re.findall(r"= (\S+)\{\S+\} copy\(", step.as_text())
    assert copies
    assert table not in copies

"""The optimizers: the Adam of the released code, and standard AdamW, LAMB and Muon."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.config.validation import one_of
from tupe_jax.training.optim.param_groups import (
    Params,
    hidden_matrix,
    is_decayed,
    is_positional,
    map_params,
    matrix_axes,
)

MUON_MOMENTUM = 0.95
MUON_RMS = 0.2
"""Root mean square of an orthogonalised update, that of a typical Adam update (Liu et al., 2025),
so that matrices can share the learning rate and the weight decay of what Adam updates."""


def make_optimizer(
    config: OptimizerConfig, schedule: optax.Schedule
) -> optax.GradientTransformation:
    """Clip by global norm (0 is off), a direction, weight decay, times the learning rate.

    Weight decay is decoupled and times the learning rate in all of them. The released Adam decays
    every parameter; the others leave out biases, LayerNorms and the like. Positional parameters
    have `position_learning_rate_factor` times the learning rate.
    """
    clip = [optax.clip_by_global_norm(config.clip_norm)] if config.clip_norm > 0 else []
    direction = OPTIMIZERS[one_of(config.name, OPTIMIZERS, "optimizer.name")]
    rate = [optax.scale_by_learning_rate(schedule), *_position_rate(config)]
    return optax.chain(*clip, *direction(config), *rate)


def _position_rate(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    """After the learning rate, so that no array of the optimizer state changes its path."""
    factor = config.position_learning_rate_factor
    if factor == 1:
        return []
    return [_scale_each(lambda path, update, param: factor if is_positional(path) else 1.0)]


def _adam_released(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    return [
        scale_by_released_adam(config.beta1, config.beta2, config.eps),
        optax.add_decayed_weights(config.weight_decay),
    ]


def _adamw(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    return [
        optax.scale_by_adam(config.beta1, config.beta2, config.eps),
        optax.add_decayed_weights(config.weight_decay, decay_mask),
    ]


def _lamb(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    return [*_adamw(config), _scale_each(_trust_ratio)]


def _muon(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    directions = {
        "muon": scale_by_muon(beta=MUON_MOMENTUM, weight_dimension_numbers=_muon_axes),
        "adam": optax.scale_by_adam(config.beta1, config.beta2, config.eps),
    }
    return [
        optax.partition(directions, _muon_or_adam),
        _scale_each(_muon_scale),
        optax.add_decayed_weights(config.weight_decay, decay_mask),
    ]


OPTIMIZERS: Mapping[str, Callable[[OptimizerConfig], list[optax.GradientTransformation]]] = {
    "adam_released": _adam_released,
    "adamw": _adamw,
    "lamb": _lamb,
    "muon": _muon,
}


# --------------------------------------------------------------------------------- released Adam


def scale_by_released_adam(beta1: float, beta2: float, eps: float) -> optax.GradientTransformation:
    """Adam with eps added to sqrt(v) before the bias correction, which scales the whole step.

    Early on this makes eps count more than in the paper's Adam: 32 times as much at first.
    """

    def init(params: Params) -> optax.ScaleByAdamState:
        # Two trees: a buffer that is in the state twice could not be donated.
        mu, nu = optax.tree.zeros_like(params), optax.tree.zeros_like(params)
        return optax.ScaleByAdamState(jnp.zeros([], jnp.int32), mu, nu)

    def update(
        gradients: Params, state: optax.ScaleByAdamState, params: Params | None = None
    ) -> tuple[Params, optax.ScaleByAdamState]:
        count = state.count + 1
        mu = optax.tree.update_moment(gradients, state.mu, beta1, 1)
        nu = optax.tree.update_moment(gradients, state.nu, beta2, 2)
        correction = jnp.sqrt(_one_minus_power(beta2, count)) / _one_minus_power(beta1, count)
        direction = jax.tree.map(lambda m, v: correction * m / (jnp.sqrt(v) + eps), mu, nu)
        return direction, optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(init, update)


def _one_minus_power(beta: float, count: jax.Array) -> jax.Array:
    """1 - beta^count, without the loss of precision in float32 for beta near 1."""
    return -jnp.expm1(count * jnp.log1p(beta - 1))


# ------------------------------------------------------------------------------ kinds of parameters


def decay_mask(params: Params) -> Any:
    """True for the parameters that are usually decayed."""
    return map_params(is_decayed, params)


def _muon_or_adam(params: Params) -> Any:
    return map_params(lambda path, p: "muon" if hidden_matrix(p) else "adam", params)


def _muon_axes(params: Params) -> Any:
    """What Muon calls dimension numbers; a masked node, as `optax.partition` has it, elsewhere."""

    def dimension_numbers(path: Any, param: nnx.Variable[Any]) -> Any:
        axes = hidden_matrix(param)
        return (
            optax.MaskedNode() if axes is None else MuonDimensionNumbers(axes.inputs, axes.outputs)
        )

    return map_params(dimension_numbers, params)


def _scale_each(
    factor: Callable[[Any, nnx.Variable[Any], nnx.Variable[Any]], Any],
) -> optax.GradientTransformation:
    """Multiply each update by `factor(path, update, param)`."""

    def scaled(path: Any, update: nnx.Variable[Any], param: nnx.Variable[Any]) -> Any:
        return update[...] * factor(path, update, param)

    return optax.stateless(lambda updates, params: map_params(scaled, updates, params))


def _muon_scale(path: Any, update: nnx.Variable[Any], param: nnx.Variable[Any]) -> float:
    """An orthogonal n x m matrix has root mean square 1 / sqrt(max(n, m))."""
    axes = hidden_matrix(param)
    if axes is None:
        return 1.0
    sides = (math.prod(param.shape[i] for i in side) for side in (axes.inputs, axes.outputs))
    return MUON_RMS * math.sqrt(max(sides))


def _trust_ratio(path: Any, update: nnx.Variable[Any], param: nnx.Variable[Any]) -> jax.Array:
    """LAMB: |w| / |update| of each matrix, also within a stack.

    1 where one of them is zero and, as in LAMB's own BERT, for biases and LayerNorms: they start
    at zero and would hardly leave it.
    """
    if not is_decayed(path, param):
        return jnp.ones([])
    within = matrix_axes(param)
    weight, step = (
        jnp.sqrt(jnp.square(x[...]).sum(within, keepdims=True)) for x in (param, update)
    )
    usable = (weight > 0) & (step > 0)
    return jnp.where(usable, weight / jnp.where(usable, step, 1), 1)

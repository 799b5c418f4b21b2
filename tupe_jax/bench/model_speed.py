"""The speed of the training step, the forward pass and attention, on random tokens."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from numpy.typing import NDArray

from tupe_jax.bench.timing import Work
from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import batch_sharding, make_mesh
from tupe_jax.kernels.sharded import Bias
from tupe_jax.model.flops import (
    attention_flops_per_token,
    flops_per_token,
    training_flops_per_token,
)
from tupe_jax.model.heads import MaskedLM
from tupe_jax.tokenizers.sentencepiece import SPECIAL_TOKENS
from tupe_jax.training.optim.schedule import learning_rate
from tupe_jax.training.program import check_settings, lower_train_step, masking
from tupe_jax.training.train_state import plan_state


def with_shape(config: Config, batch_size: int, length: int) -> Config:
    """The config with another batch shape; the table of positions grows if needed."""
    position = config.model.position
    longest = max(position.max_length, length)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(
            config.model, position=dataclasses.replace(position, max_length=longest)
        ),
        data=dataclasses.replace(config.data, length=length),
        train=dataclasses.replace(config.train, batch_size=batch_size),
    )


def random_words(config: Config) -> NDArray[np.int32]:
    """A batch [B, S] of random tokens without special ones."""
    return np.random.default_rng(0).integers(
        len(SPECIAL_TOKENS),
        config.model.vocab_size,
        (config.train.batch_size, config.data.length),
        dtype=np.int32,
    )


def training_step(config: Config) -> Work:
    """Mask, forward, backward, update: the step of `tupe pretrain`."""
    mesh = make_mesh(config.mesh)
    check_settings(config, mesh)
    plan = plan_state(config, mesh)
    schedule = learning_rate(config.optimizer, total_steps=10**6, warmup_steps=1, decay_steps=1)
    mask = masking(config, [True] * config.model.vocab_size)
    step = lower_train_step(config, plan, mesh, mask, schedule).compile()
    tokens_BxS = jax.device_put(random_words(config), batch_sharding(mesh))
    state = plan.create()

    def work(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state, _ = step(state, tokens_BxS)
        jax.block_until_ready(state)

    return work


def forward_pass(config: Config) -> Work:
    """The hidden states of a batch, without dropout."""
    mesh = make_mesh(config.mesh)
    plan = plan_state(config, mesh)
    graph, params = plan.graph, plan.create().params

    def encode(params: Any, tokens_BxS: jax.Array) -> jax.Array:
        model: MaskedLM = nnx.merge(graph, params)
        return model.encode(tokens_BxS)

    tokens_BxS = jax.device_put(random_words(config), batch_sharding(mesh))
    return _repeated(encode, mesh, params, tokens_BxS)


def attention_alone(config: Config) -> Work:
    """The self-attention of one layer with its projections, forward and backward, with dropout."""
    mesh = make_mesh(config.mesh)
    plan = plan_state(config, mesh)
    model: MaskedLM = nnx.merge(plan.graph, plan.create().params)
    layers_graph, stacked = nnx.split(model.encoder.layers)
    first = nnx.merge(layers_graph, jax.tree.map(lambda x: x[0], stacked))
    graph, weights = nnx.split(first.attention)
    tokens_BxS = jax.device_put(random_words(config), batch_sharding(mesh))
    shared = model.encoder.shared_inputs(tokens_BxS)
    x_BxSxD = model.encoder.embed(tokens_BxS)

    # Not ones: of what is the same for all outputs a compiler could make something simpler.
    gradient_BxSxD = jax.device_put(
        jax.random.normal(jax.random.key(1), x_BxSxD.shape, x_BxSxD.dtype), x_BxSxD.sharding
    )

    def attend(weights: Any, bias: Bias, x_BxSxD: jax.Array) -> jax.Array:
        inputs = dataclasses.replace(shared, bias=bias)
        out: jax.Array = nnx.merge(graph, weights)(x_BxSxD, inputs, jax.random.key(0))
        return out

    def gradients(gradient_BxSxD: jax.Array, *inputs: Any) -> Any:
        _, pull_back = jax.vjp(attend, *inputs)
        return pull_back(gradient_BxSxD)

    return _repeated(gradients, mesh, gradient_BxSxD, weights, shared.bias, x_BxSxD)


def _repeated(function: Callable[..., Any], mesh: Mesh, *arguments: Any) -> Work:
    with jax.set_mesh(mesh):
        compiled = jax.jit(function).lower(*arguments).compile()

    def work(count: int) -> None:
        for _ in range(count):
            result = compiled(*arguments)
        jax.block_until_ready(result)

    return work


@dataclasses.dataclass(frozen=True)
class Component:
    """A component: how to run it, and the FLOPs per token that it needs."""

    make: Callable[[Config], Work]
    flops_per_token: Callable[[Config], float]


def _training_flops(config: Config) -> float:
    return training_flops_per_token(
        config.model,
        config.data.length,
        config.objective.mask_rate,
        rows=config.train.batch_size // config.train.accumulate,
    )


def _encoder_flops(config: Config) -> float:
    return flops_per_token(config.model, config.data.length, 0.0, rows=config.train.batch_size)


COMPONENTS: Mapping[str, Component] = {
    "step": Component(training_step, _training_flops),
    "forward": Component(forward_pass, _encoder_flops),
    "attention": Component(
        attention_alone, lambda c: 3 * attention_flops_per_token(c.model, c.data.length)
    ),
}

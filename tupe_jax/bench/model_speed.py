"""The speed of training, encoding and attention of a model on random tokens."""

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
from tupe_jax.model.flops import attention_flops_per_token, flops_per_token
from tupe_jax.objectives.base import Objective
from tupe_jax.objectives.registry import make_objective
from tupe_jax.tokenizers.sentencepiece import SPECIAL_TOKENS
from tupe_jax.training.optim.schedule import learning_rate
from tupe_jax.training.train_state import plan_state
from tupe_jax.training.train_step import check_settings, lower_train_step


def with_shape(config: Config, batch_size: int, length: int) -> Config:
    """The config with another batch; position tables grow if the sequences need it."""
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


def random_tokens(config: Config) -> NDArray[np.int32]:
    """A batch [B, S] of ordinary tokens."""
    return np.random.default_rng(0).integers(
        len(SPECIAL_TOKENS),
        config.model.vocab_size,
        (config.train.batch_size, config.data.length),
        dtype=np.int32,
    )


def random_batch(config: Config, objective: Objective) -> dict[str, NDArray[Any]]:
    """A batch of ordinary tokens; other features are zero."""
    zeros = {
        name: np.zeros((config.train.batch_size, *feature.shape), feature.dtype)
        for name, feature in objective.features.items()
    }
    return {**zeros, "tokens": random_tokens(config)}


def training_step(config: Config) -> Work:
    """Mask, forward, backward, update: the step of `tupe pretrain`."""
    mesh = make_mesh(config.mesh)
    check_settings(config, mesh)
    plan = plan_state(config, mesh)
    schedule = learning_rate(config.optimizer, total_steps=10**6, warmup_steps=1, decay_steps=1)
    objective = make_objective(config, [True] * config.model.vocab_size)
    step = lower_train_step(config, plan, mesh, objective, schedule).compile()
    batch = jax.device_put(random_batch(config, objective), batch_sharding(mesh))
    state = plan.create()

    def work(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state, _ = step(state, batch)
        jax.block_until_ready(state)

    return work


def forward_pass(config: Config) -> Work:
    """The hidden states of a batch without dropout, as in inference."""
    mesh = make_mesh(config.mesh)
    plan = plan_state(config, mesh)
    objective, graph, params = make_objective(config), plan.graph, plan.create().params

    def encode(params: Any, tokens_BxS: jax.Array) -> jax.Array:
        return objective.to_export(nnx.merge(graph, params)).model.encode(tokens_BxS)

    tokens_BxS = jax.device_put(random_tokens(config), batch_sharding(mesh))
    return _repeated(encode, mesh, params, tokens_BxS)


def attention_alone(config: Config) -> Work:
    """The first layer's self-attention with its projections, forward and backward, with dropout."""
    mesh = make_mesh(config.mesh)
    plan = plan_state(config, mesh)
    trained = nnx.merge(plan.graph, plan.create().params)
    model = make_objective(config).to_export(trained).model
    layers_graph, stacked = nnx.split(model.encoder.layers)
    first = nnx.merge(layers_graph, jax.tree.map(lambda x: x[0], stacked))
    graph, weights = nnx.split(first.attention)
    tokens_BxS = jax.device_put(random_tokens(config), batch_sharding(mesh))
    shared = model.encoder.shared_inputs(tokens_BxS)[model.config.windows[0]]
    x_BxSxD = model.encoder.embed(tokens_BxS)

    # Not ones: a compiler could simplify a gradient that is constant.
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
class ModelBenchmark:
    """A workload, and the FLOPs per token that it needs at least."""

    make: Callable[[Config], Work]
    flops_per_token: Callable[[Config], float]


def _encoder_flops(config: Config) -> float:
    return flops_per_token(config.model, config.data.length, 0.0, rows=config.train.batch_size)


def _attention_flops(config: Config) -> float:
    model = config.model
    return 3 * attention_flops_per_token(model, config.data.length, model.windows[0])


MODEL_BENCHMARKS: Mapping[str, ModelBenchmark] = {
    "step": ModelBenchmark(training_step, lambda c: make_objective(c).training_flops_per_token()),
    "forward": ModelBenchmark(forward_pass, _encoder_flops),
    "attention": ModelBenchmark(attention_alone, _attention_flops),
}

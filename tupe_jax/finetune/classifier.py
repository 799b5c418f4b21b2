"""One fine-tuning trial as pure functions: initial state, training step, outputs, best weights.

`vmapped.py` runs many trials in one program.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tupe_jax.config.schema import ModelConfig
from tupe_jax.finetune.data import LabelledBatch
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import Array, Path
from tupe_jax.training.train_state import Params, random_key

HEADS = "classification_heads"
TRAINED_PARTS = ("encoder", "pooler", HEADS)
"""What a classifier uses of a model. The heads of pre-training stay as they are."""
_TRAINED = nnx.Any(*(nnx.PathContains(part) for part in TRAINED_PARTS))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrialState:
    """The training state of a trial, or of several trials with a leading axis."""

    step: jax.Array
    """int32: number of batches so far."""
    params: Params
    """The parameters of `TRAINED_PARTS`."""
    opt_state: optax.OptState
    loss_sum: jax.Array
    """Summed over the batches since the last evaluation."""
    best_params: Params
    """The weights of the best evaluation so far."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Choices:
    """Learning rate and seed of a trial, as arrays."""

    learning_rate: Any
    seed: Any


@dataclass(frozen=True)
class Classifier:
    """A model with one classification head, without its weights."""

    config: ModelConfig
    head: str
    num_outputs: int
    is_regression: bool

    def create(self, seed: jax.Array | int) -> MaskedLM:
        """The model with random weights, a function of the seed."""
        rngs = nnx.Rngs(random_key(seed, "init", 0))
        return MaskedLM(self.config, rngs=rngs, classification_heads={self.head: self.num_outputs})

    def first_params(self, seed: jax.Array, pretrained: Mapping[Path, Array]) -> Params:
        """All that is pretrained and a random head; all random where nothing is pretrained."""
        params = nnx.state(self.create(seed), _TRAINED)
        if not pretrained:
            return params
        taken = [
            (path, param if path[0] == HEADS else param.replace(pretrained[tuple(map(str, path))]))
            for path, param in nnx.to_flat_state(params)
        ]
        started: Params = nnx.from_flat_state(taken)
        return started

    def outputs_BxC(
        self, params: Params, tokens_BxS: jax.Array, key: jax.Array | None = None
    ) -> jax.Array:
        abstract = nnx.eval_shape(lambda: self.create(0))
        graph, unused = nnx.graphdef(abstract), nnx.state(abstract, nnx.Not(_TRAINED))
        model: MaskedLM = nnx.merge(graph, unused, params)  # of what is unused, shapes only
        return model.classify(tokens_BxS, self.head, key=key)

    def loss(self, params: Params, batch: LabelledBatch, key: jax.Array | None) -> jax.Array:
        """Mean over examples of weight 1: cross-entropy, or squared error for regression."""
        outputs_BxC = self.outputs_BxC(params, batch.tokens_BxS, key)
        if self.is_regression:
            loss_B = jnp.square(outputs_BxC[:, 0] - batch.labels_B)
        else:
            loss_B = optax.softmax_cross_entropy_with_integer_labels(outputs_BxC, batch.labels_B)
        return jnp.sum(loss_B * batch.weights_B) / jnp.sum(batch.weights_B)


def first_state(
    classifier: Classifier,
    optimizer: optax.GradientTransformation,
    choices: Choices,
    pretrained: Mapping[Path, Array],
) -> TrialState:
    params = classifier.first_params(choices.seed, pretrained)
    return TrialState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=optimizer.init(params),
        loss_sum=jnp.zeros(()),
        best_params=jax.tree.map(jnp.copy, params),
    )


def train_step(
    classifier: Classifier,
    optimizer: optax.GradientTransformation,
    state: TrialState,
    choices: Choices,
    batch: LabelledBatch,
) -> tuple[TrialState, jax.Array]:
    """The state after one more batch, and the loss of that batch.

    `optimizer` has a schedule with peak 1; its updates are multiplied by the trial's learning rate.
    """
    key = random_key(choices.seed, "dropout", state.step)
    loss, gradient = jax.value_and_grad(classifier.loss)(state.params, batch, key)
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
    updates = optax.tree.scale(choices.learning_rate, updates)
    after = replace(
        state,
        step=state.step + 1,
        params=optax.apply_updates(state.params, updates),
        opt_state=opt_state,
        loss_sum=state.loss_sum + loss,
    )
    return after, loss


def after_evaluation(state: TrialState, is_best: jax.Array) -> TrialState:
    """Keep the weights if they are the best so far; reset the sum of losses."""
    best_params = jax.tree.map(
        lambda now, best: jnp.where(is_best, now, best), state.params, state.best_params
    )
    return replace(state, best_params=best_params, loss_sum=jnp.zeros_like(state.loss_sum))

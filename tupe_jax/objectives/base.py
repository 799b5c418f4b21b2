"""The interface of a pre-training objective.

The training step, evaluation, the loop, checkpoints and benchmarks use an objective only through
this interface. A new objective is a new file in this folder and a line in `registry.py`. If it
reads a feature other than `tokens`, the readers in `tupe_jax.data.pretraining` must supply it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.config.schema import ModelConfig
from tupe_jax.model.heads import MaskedLM

Features = Mapping[str, jax.Array]
"""A batch on the device: features by name, `[B, ...]` each."""


class Statistic(Protocol):
    """A tree of float32 sums from which a metric is computed after the last batch."""

    def value(self) -> jax.Array: ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Term:
    """One loss of an objective, as float32 sums; the sums of several batches add up."""

    loss: jax.Array
    """Summed over the targets."""
    metrics: Mapping[str, jax.Array | Statistic]
    """Other sums over the same targets, such as `accuracy`: the number of correct predictions. A
    metric that is not a mean over the targets is a `Statistic`."""


@dataclass(frozen=True)
class Exported:
    """What remains of a trained module after pre-training."""

    model: MaskedLM
    """The model that is loaded, analyzed, fine-tuned and exported."""
    generator: MaskedLM | None = None
    """ELECTRA's second model, which predicts masked tokens in place of `model`."""

    @property
    def language_model(self) -> MaskedLM | None:
        """The model that predicts masked tokens, if one does."""
        return self.model if self.model.config.masked_word_head else self.generator


class Objective(Protocol):
    """A pre-training objective.

    `B` is the number of examples. `Inputs` is any tree of arrays `[B, ...]`: the step splits it
    into micro-batches along its first axis.
    """

    @property
    def features(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        """What it reads of a batch: the shape and type of one example of each feature."""

    @property
    def coefficients(self) -> Mapping[str, float]:
        """The names of its terms, and the factor of each in the loss."""

    @property
    def loss_unit(self) -> str:
        """What the loss counts, such as "nats per masked token"."""

    def build(self, rngs: nnx.Rngs) -> nnx.Module:
        """Return the module that is trained."""

    def prepare(self, batch: Features, key: jax.Array) -> Any:
        """Return the `Inputs` of a batch, on the device: mask tokens, draw noise.

        Randomness that evaluation needs as well belongs here, not in `terms`.
        """

    def weights(self, inputs: Any) -> dict[str, jax.Array]:
        """Return the number of targets of each term, float32.

        The last validation batch is filled up with examples whose tokens are all padding and whose
        other features are 0. Such an example must not count as a target.
        """

    def terms(self, module: Any, inputs: Any, key: jax.Array | None) -> dict[str, Term]:
        """Return the terms of a batch or micro-batch; with a key, dropout is on."""

    def to_export(self, module: Any) -> Exported:
        """Return the models that are loaded, fine-tuned and exported."""

    def networks(self) -> Sequence[ModelConfig]:
        """Return the configs of the models that a training step runs."""

    def training_flops_per_token(self) -> float:
        """Return the model FLOPs of a training step, per token of the batch."""

    def baseline(self, counts_V: NDArray[np.int64], inputs: Iterable[Any]) -> Mapping[str, float]:
        """Return the metrics of predicting from token counts only, by name, where that is defined.

        `inputs` are those of all validation batches.
        """


def total_loss(
    objective: Objective, terms: Mapping[str, Term], weights: Mapping[str, jax.Array]
) -> jax.Array:
    """Return the sum of coefficient * loss / weight over all terms.

    For the gradients of micro-batches to add up, `weights` are those of the whole batch. A term
    without any target makes the loss NaN, and the step skips the batch.
    """
    parts = [
        factor * terms[name].loss / weights[name] for name, factor in objective.coefficients.items()
    ]
    return sum(parts[1:], start=parts[0])


def metrics(
    objective: Objective, terms: Mapping[str, Term], weights: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """Return the metrics of one or more batches: `loss`, and the means of each term.

    The metrics of an only term keep their names, such as `accuracy`. Those of several begin with
    the name of the term: `masked_lm_loss`, `masked_lm_accuracy`.
    """
    named = {"loss": total_loss(objective, terms, weights)}
    several = len(terms) > 1
    for name, term in terms.items():
        sums = {"loss": term.loss, **term.metrics} if several else term.metrics
        prefix = f"{name}_" if several else ""
        for metric, value in sums.items():
            mean = value / weights[name] if isinstance(value, jax.Array) else value.value()
            named[f"{prefix}{metric}"] = mean
    return named

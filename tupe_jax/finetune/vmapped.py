"""Many fine-tunings in one program: a step of all trials is one trial's step, vmapped.

The arrays of all trials lie side by side, along a first axis that is divided among the devices. No
trial knows of the others: what it computes is what it would compute alone, up to the rounding of
sums, and devices have nothing to tell each other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.finetune.classifier import (
    Choices,
    Classifier,
    TrialState,
    after_evaluation,
    first_state,
    train_step,
)
from tupe_jax.finetune.trial import Trial
from tupe_jax.model.params import Array, Path
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.optim.schedule import scheduled_learning_rate
from tupe_jax.training.train_state import Params

AXIS = "trials"
BY_TRIAL, WHOLE = PartitionSpec(AXIS), PartitionSpec()


@dataclass(frozen=True)
class Programs:
    """What can be done with several trials at once, on the devices of a mesh.

    All arrays have a leading axis of trials, but for what is said to be common to them. A state
    that is given to `train` or `after_evaluation` is given up.
    """

    mesh: Mesh
    first_state: Callable[[Choices, Mapping[Path, Array]], TrialState]
    """From choices and common pretrained weights."""
    train: jax.stages.Wrapped
    """(state, choices, batch) -> (state, losses)."""
    after_evaluation: Callable[[TrialState, Array], TrialState]
    outputs_TxBxC: Callable[[Params, Array], jax.Array]
    """From params and the tokens of a common batch."""

    def choices(self, trials: Sequence[Trial]) -> Choices:
        choices = Choices(
            learning_rate=np.array([trial.learning_rate for trial in trials], np.float32),
            seed=np.array([trial.seed for trial in trials], np.uint32),
        )
        placed: Choices = jax.device_put(choices, self._sharding)
        return placed

    def abstract_state(self, choices: Choices, pretrained: Mapping[Path, Array]) -> TrialState:
        """Shapes and shardings, as a restore wants them."""
        state: TrialState = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._sharding),
            jax.eval_shape(self.first_state, choices, pretrained),
        )
        return state

    @property
    def _sharding(self) -> NamedSharding:
        return NamedSharding(self.mesh, BY_TRIAL)


def make_programs(
    classifier: Classifier, optimizer: optax.GradientTransformation, mesh: Mesh
) -> Programs:
    """The programs of one task; they are compiled when they first meet a shape."""

    def of_trials(function: Callable[..., Any], *in_specs: Any, **settings: Any) -> Any:
        """A function of one trial as one of all; arguments that are `WHOLE` are common to them."""
        in_axes = [0 if spec == BY_TRIAL else None for spec in in_specs]
        divided = jax.shard_map(
            jax.vmap(function, in_axes),
            mesh=mesh,
            in_specs=in_specs,
            out_specs=BY_TRIAL,
            check_vma=False,  # Pallas kernels do not say along which axes their outputs vary
        )
        return jax.jit(divided, **settings)

    return Programs(
        mesh=mesh,
        first_state=of_trials(partial(first_state, classifier, optimizer), BY_TRIAL, WHOLE),
        train=of_trials(
            partial(train_step, classifier, optimizer),
            *(BY_TRIAL, BY_TRIAL, BY_TRIAL),
            donate_argnums=0,
        ),
        after_evaluation=of_trials(after_evaluation, BY_TRIAL, BY_TRIAL, donate_argnums=0),
        outputs_TxBxC=of_trials(classifier.outputs_BxC, BY_TRIAL, WHOLE),
    )


def mesh_for(trials: int, devices: Sequence[Any]) -> Mesh:
    """As many of the devices as get the same number of trials each."""
    count = max(n for n in range(1, len(devices) + 1) if trials % n == 0)
    return Mesh(np.asarray(devices[:count]), (AXIS,))


def unit_optimizer(
    config: OptimizerConfig, *, total_steps: int, batch_size: int, sequences_per_epoch: int
) -> optax.GradientTransformation:
    """The optimizer with a peak learning rate of 1, by which every trial multiplies its own."""
    config = replace(config, peak_learning_rate=1.0)
    schedule = scheduled_learning_rate(
        config,
        total_steps=total_steps,
        batch_size=batch_size,
        sequences_per_epoch=sequences_per_epoch,
    )
    return make_optimizer(config, schedule)

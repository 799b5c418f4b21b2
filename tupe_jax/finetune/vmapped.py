"""Many fine-tuning trials in one program: the step of one trial, vmapped.

The arrays of all trials have a leading axis that is sharded over the devices. Trials are
independent: each computes what it would compute alone, up to the rounding of sums, and the devices
do not communicate.
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
from tupe_jax.finetune.results import Trial
from tupe_jax.model.params import Array, Path
from tupe_jax.training.optim.optimizer import make_optimizer
from tupe_jax.training.optim.schedule import scheduled_learning_rate
from tupe_jax.training.train_state import Params

AXIS = "trials"
BY_TRIAL, WHOLE = PartitionSpec(AXIS), PartitionSpec()


@dataclass(frozen=True)
class Programs:
    """Compiled functions of several trials, on the devices of a mesh.

    All arrays have a leading axis of trials unless they are shared by all trials. `train` and
    `after_evaluation` donate the state.
    """

    mesh: Mesh
    first_state: Callable[[Choices, Mapping[Path, Array]], TrialState]
    """(choices, shared pre-trained weights) -> state."""
    train: jax.stages.Wrapped
    """(state, choices, batch) -> (state, losses)."""
    after_evaluation: Callable[[TrialState, Array], TrialState]
    outputs_TxBxC: Callable[[Params, Array], jax.Array]
    """From params and the tokens of a shared batch."""

    def choices(self, trials: Sequence[Trial]) -> Choices:
        choices = Choices(
            learning_rate=np.array([trial.learning_rate for trial in trials], np.float32),
            seed=np.array([trial.seed for trial in trials], np.uint32),
        )
        placed: Choices = jax.device_put(choices, self._sharding)
        return placed

    def abstract_state(self, choices: Choices, pretrained: Mapping[Path, Array]) -> TrialState:
        """Shapes and shardings, for restoring a checkpoint."""
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
    """The functions of one task; each is compiled at its first call with a new shape."""

    def of_trials(function: Callable[..., Any], *in_specs: Any, **settings: Any) -> Any:
        """Map a function of one trial over all; arguments that are `WHOLE` are shared."""
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
    """The largest number of devices that divides the trials evenly."""
    count = max(n for n in range(1, len(devices) + 1) if trials % n == 0)
    return Mesh(np.asarray(devices[:count]), (AXIS,))


def unit_optimizer(
    config: OptimizerConfig, *, total_steps: int, batch_size: int, sequences_per_epoch: int
) -> optax.GradientTransformation:
    """The optimizer with a peak learning rate of 1, which each trial scales by its own."""
    config = replace(config, peak_learning_rate=1.0)
    schedule = scheduled_learning_rate(
        config,
        total_steps=total_steps,
        batch_size=batch_size,
        sequences_per_epoch=sequences_per_epoch,
    )
    return make_optimizer(config, schedule)

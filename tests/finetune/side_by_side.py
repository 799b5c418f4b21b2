"""Several trials in one program; as a module, on all devices of the process, printed as JSON."""

import json

import jax
import numpy as np

from tests.model.helpers import small_config, spread_model
from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.finetune.classifier import Classifier
from tupe_jax.finetune.data import EncodedSplit, TrainBatches
from tupe_jax.finetune.results import Trial
from tupe_jax.finetune.vmapped import make_programs, mesh_for, unit_optimizer
from tupe_jax.model.params import arrays_of

TRIALS = [Trial(1e-3, 0), Trial(1e-3, 1), Trial(3e-3, 0)]
CLASSIFIER = Classifier(
    small_config(num_layers=1, layer_loop="scan"), "head", 2, is_regression=False
)
PRETRAINED = {
    path: array
    for path, array in arrays_of(spread_model(CLASSIFIER.config)).items()
    if path[0] == "encoder"
}
STEPS, ROWS, LENGTH = 4, 20, 12
OPTIMIZER = unit_optimizer(
    OptimizerConfig(warmup="0"), total_steps=STEPS, batch_size=8, sequences_per_epoch=ROWS
)


def rows():
    random = np.random.default_rng(0)
    tokens = random.integers(5, 50, (ROWS, LENGTH), dtype=np.int32)
    tokens[::3, -4:] = 0
    lengths = (tokens != 0).sum(1, dtype=np.int32)
    return EncodedSplit(tokens, lengths, random.integers(0, 2, ROWS).astype(np.int32))


def train(trials):
    """Losses [T, steps], outputs after the last one, and after half of them as the best weights."""
    programs = make_programs(CLASSIFIER, OPTIMIZER, mesh_for(len(trials), jax.devices()))
    choices = programs.choices(trials)
    state = programs.first_state(choices, PRETRAINED)
    batches = TrainBatches(rows(), [trial.seed for trial in trials], 8, (LENGTH,))
    losses = []
    for step in range(STEPS):
        if step == STEPS // 2:
            state = programs.after_evaluation(state, np.array([True] * len(trials)))
        state, loss_T = programs.train(state, choices, batches(step))
        losses.append(np.asarray(loss_T))
    tokens = rows().tokens_NxS
    return {
        "losses": np.stack(losses, axis=1),
        "loss sums": np.asarray(state.loss_sum),
        "outputs": np.asarray(programs.outputs_TxBxC(state.params, tokens)),
        "best outputs": np.asarray(programs.outputs_TxBxC(state.best_params, tokens)),
    }


if __name__ == "__main__":
    seen = {name: values.tolist() for name, values in train(TRIALS).items()}
    print(json.dumps({**seen, "devices": jax.device_count()}))

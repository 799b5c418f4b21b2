"""The cost of an asynchronous save: training steps with and without a concurrent save."""

import math
import statistics
import time
from dataclasses import asdict, dataclass

import jax

from tupe_jax.bench.model_speed import random_batch
from tupe_jax.checkpointing.manager import Checkpoints
from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import batch_sharding, make_mesh
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training.optim.schedule import learning_rate
from tupe_jax.training.train_state import TrainState, plan_state
from tupe_jax.training.train_step import lower_train_step
from tupe_jax.utils.paths import Path

REPEATS = 5
WINDOW_SECONDS = 3.0
"""Long enough for a save to finish during the timed steps."""


@dataclass(frozen=True)
class SaveSpeed:
    """Seconds of a step without a save; for each save, its blocking time and its total cost."""

    step_seconds: float
    blocked_seconds: tuple[float, ...]
    extra_seconds: tuple[float, ...]
    every: int

    @property
    def share(self) -> float:
        """The cost of a save, relative to the time between two saves."""
        return statistics.median(self.extra_seconds) / (self.every * self.step_seconds)


def measure_checkpoint(config: Config, folder: Path) -> SaveSpeed:
    """Train on random tokens with saves in between."""
    mesh = make_mesh(config.mesh)
    schedule = learning_rate(config.optimizer, total_steps=10**6, warmup_steps=1, decay_steps=1)
    plan = plan_state(config, mesh)
    objective = make_objective(config, [True] * config.model.vocab_size)
    train_step = lower_train_step(config, plan, mesh, objective, schedule).compile()
    batch = jax.device_put(random_batch(config, objective), batch_sharding(mesh))

    def steps(state: TrainState, count: int) -> tuple[TrainState, float]:
        began = time.perf_counter()
        for _ in range(count):
            state, _ = train_step(state, batch)
        jax.block_until_ready(state)
        return state, time.perf_counter() - began

    checkpoints = Checkpoints(folder, config.checkpoint)

    def save(state: TrainState, number: int) -> float:
        began = time.perf_counter()
        checkpoints.save(number, state, data={}, config=asdict(config), vocabulary=b"", force=True)
        return time.perf_counter() - began

    state, _ = steps(plan.create(), 3)
    save(state, 0)  # compiles the computations of a save
    checkpoints.wait()
    state, seconds = steps(state, 3)
    count = max(3, math.ceil(WINDOW_SECONDS / (seconds / 3)))
    alone, blocked, extra = [], [], []
    for number in range(1, REPEATS + 1):
        state, without = steps(state, count)
        blocked.append(save(state, number))
        state, beside = steps(state, count)
        alone.append(without / count)
        extra.append(blocked[-1] + beside - without)
        checkpoints.wait()
    checkpoints.close()
    return SaveSpeed(
        step_seconds=statistics.median(alone),
        blocked_seconds=tuple(blocked),
        extra_seconds=tuple(extra),
        every=config.checkpoint.every,
    )

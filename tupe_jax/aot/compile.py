"""Would a config train on hardware that is not here? Ask its compiler."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from jax.sharding import Mesh

from tupe_jax.aot.batch_search import largest_batch
from tupe_jax.aot.compiled import Compiled, Program, compile_program
from tupe_jax.aot.step_time import Estimate, estimate
from tupe_jax.aot.targets import Target
from tupe_jax.config.schema import Config, Remat
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.distributed.sharding_rules import LOGICAL_AXES
from tupe_jax.kernels.dispatch import Choice
from tupe_jax.model.attention_backend import attention_choice
from tupe_jax.model.flops import recomputed_flops_per_token
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training.train_state import plan_state
from tupe_jax.training.train_step import (
    batch_shapes,
    check_settings,
    lower_train_step,
    schedule_of,
)

CHEAPEST_FIRST: tuple[Remat, ...] = ("none", "dots", "projections", "full")


@dataclass(frozen=True)
class Answer:
    """What the compiler said about the train step of a config."""

    config: Config
    target: Target
    mesh: Mesh
    compiled: Compiled

    @property
    def devices(self) -> int:
        return int(self.mesh.size)

    @property
    def rows_per_device(self) -> int:
        """In one pass: a micro-batch, if there are several."""
        return rows_per_device(self.config, self.mesh)

    @property
    def spare_bytes(self) -> int:
        """Of a device's memory; negative if the step does not fit."""
        if self.compiled.collectives is None:  # the compiler's own count decides
            return min(self.target.chip.memory - self.compiled.peak_bytes, -1)
        return self.target.chip.memory - self.compiled.peak_bytes

    @property
    def fits(self) -> bool:
        return self.spare_bytes >= 0

    @property
    def tokens_per_step(self) -> int:
        return self.config.train.batch_size * self.config.data.length

    @property
    def attention(self) -> Choice:
        """Which implementation of attention was compiled."""
        config = self.config
        return attention_choice(config.model, self.target.chip.platform, config.data.length)

    @property
    def flops_per_step(self) -> float:
        """Of the model, counted from its shapes."""
        return self.tokens_per_step * make_objective(self.config).training_flops_per_token()

    def estimate(self, peak_share: float) -> Estimate:
        """How long a step would take."""
        again = recomputed_flops_per_token(
            self.config.model,
            self.config.data.length,
            by_kernel=self.attention.implementation == "pallas",
        )
        return estimate(
            self.target.chip,
            flops_per_device=self.flops_per_step / self.devices,
            recomputed_per_device=again * self.tokens_per_step / self.devices,
            collectives=self.compiled.collectives or [],
            peak_share=peak_share,
        )


def mesh_for(config: Config, target: Target) -> Mesh:
    """The config's mesh of the target's devices: as many slices as it wants, of such a size."""
    return make_mesh(config.mesh, target.devices(max(config.mesh.slice, 1)))


def train_step_program(config: Config, mesh: Mesh) -> Program:
    """The step of `tupe pretrain` on these devices; no data is needed to compile it."""
    check_settings(config, mesh)
    plan = plan_state(config, mesh)
    # Of the vocabulary and the corpus only sizes matter here.
    objective = make_objective(config, [True] * config.model.vocab_size)
    schedule = schedule_of(config, sequences_per_epoch=1)
    state = plan.abstract_sharded
    return Program(
        lower=lambda: lower_train_step(config, plan, mesh, objective, schedule),
        mesh=mesh,
        arguments={
            "parameters": state.params,
            "optimizer": state.opt_state,
            **({} if state.ema is None else {"average": state.ema}),
            "batch": batch_shapes(config, mesh, objective),
        },
    )


def ask(config: Config, target: Target, mesh: Mesh) -> Answer:
    return Answer(config, target, mesh, compile_program(train_step_program(config, mesh)))


def fit(
    config: Config,
    target: Target,
    mesh: Mesh,
    say: Callable[[Answer], None],
    known: Answer | None = None,
) -> Answer:
    """The config with the cheapest remat under which its batch fits, then with the largest batch.

    If its batch fits under no policy: with the largest batch under the one that saves most. `say`
    hears of every compilation; `known` is one that need not be done again.
    """
    answers: dict[tuple[Remat, int], Answer] = {}
    if known is not None:
        answers[known.config.model.remat, known.rows_per_device] = known

    def answer(remat: Remat, rows: int) -> Answer:
        if (remat, rows) not in answers:
            model = dataclasses.replace(config.model, remat=remat)
            changed = with_rows(dataclasses.replace(config, model=model), rows, mesh)
            answers[remat, rows] = ask(changed, target, mesh)
            say(answers[remat, rows])
        return answers[remat, rows]

    start = rows_per_device(config, mesh)
    policy = next((p for p in CHEAPEST_FIRST if answer(p, start).fits), CHEAPEST_FIRST[-1])
    memory = target.chip.memory
    most = largest_batch(
        lambda rows: memory - answer(policy, rows).spare_bytes, limit=memory, start=start
    )
    return answer(policy, max(most, 1))


def rows_per_device(config: Config, mesh: Mesh) -> int:
    return config.train.batch_size // config.train.accumulate // _parts(mesh)


def with_rows(config: Config, rows: int, mesh: Mesh) -> Config:
    """The config with a batch of so many rows per device and micro-batch."""
    batch_size = rows * _parts(mesh) * config.train.accumulate
    return dataclasses.replace(
        config, train=dataclasses.replace(config.train, batch_size=batch_size)
    )


def passes_for_same_batch(asked: Answer, rows: int) -> int | None:
    """`train.accumulate` with which the batch asked for takes at most so many rows per device."""
    each = asked.config.train.batch_size // _parts(asked.mesh)
    return next((n for n in range(1, each + 1) if each % n == 0 and each // n <= rows), None)


def _parts(mesh: Mesh) -> int:
    """Into which a batch is cut."""
    return math.prod(mesh.shape[axis] for axis in LOGICAL_AXES["batch"])

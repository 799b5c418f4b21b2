"""The training loop, from top to bottom.

Resuming is exact: all randomness is a function of (seed, step), so on the same devices a resumed
run gives the same numbers as one that was never stopped. A resumed run first checks that its config
is unchanged. Then it restores the state of the newest valid checkpoint onto its own mesh and the
position of the reader, and truncates the metrics file to that step.
"""

import dataclasses
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import jax
from flax import nnx

from tupe_jax.checkpointing.manager import FOLDER as CHECKPOINTS
from tupe_jax.checkpointing.manager import Checkpoints
from tupe_jax.config.schema import Config
from tupe_jax.distributed.mesh import batch_sharding, block_on_cpu, make_mesh
from tupe_jax.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from tupe_jax.model.attention_backend import attention_choices, platform_of
from tupe_jax.objectives.base import Exported, Objective
from tupe_jax.objectives.registry import make_objective
from tupe_jax.run.compilation_cache import compilation_cache
from tupe_jax.run.preemption import Requests, SaveTimer, Stop
from tupe_jax.run.resume_checks import check_begun_with, check_unchanged
from tupe_jax.run.watchdog import Watchdog
from tupe_jax.training.dataset import (
    Dataset,
    global_batch,
    host_shard,
    make_dataset,
    open_dataset,
)
from tupe_jax.training.evaluation import Validation, metrics_text
from tupe_jax.training.monitoring.loss_spikes import SpikeDetector
from tupe_jax.training.monitoring.metrics import METRICS_FILE, MetricWriter
from tupe_jax.training.monitoring.metrics import read_metrics as read_metrics_file
from tupe_jax.training.monitoring.position_bias import PositionBiasSizes
from tupe_jax.training.monitoring.profiler import Profile
from tupe_jax.training.monitoring.progress import Progress
from tupe_jax.training.monitoring.throughput import Speedometer
from tupe_jax.training.train_state import Params, TrainState, plan_state
from tupe_jax.training.train_step import (
    Metrics,
    check_settings,
    lower_train_step,
    schedule_of,
)
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The result of a run that finished or was stopped on request."""

    step: int
    finished: bool
    resumed_from: int
    """The step at which this process began."""
    exported: Exported
    """With averaged weights, if the config asks for them."""
    objective: Objective
    dataset: Dataset
    validation: Validation


class DivergedError(UserError):
    """Training ended because the loss or the gradient was not finite at several steps in a row."""


def pretrain(
    config: Config,
    workdir: Path,
    stop: Stop,
    processes: ProcessGroup = SINGLE_PROCESS,
    watchdog: Watchdog | None = None,
) -> RunResult:
    """Train from the newest checkpoint in the work directory, or from the start, to the end.

    Pass a watchdog if it must also cover work after training, such as the summary.
    """
    with ExitStack() as cleanup:  # on any exit, a checkpoint in progress is completed
        if watchdog is None:
            watchdog = cleanup.enter_context(Watchdog(config.watchdog, processes))
        return _pretrain(config, workdir, stop, processes, watchdog, cleanup)


def _pretrain(
    config: Config,
    workdir: Path,
    stop: Stop,
    processes: ProcessGroup,
    watchdog: Watchdog,
    cleanup: ExitStack,
) -> RunResult:
    # ------------------------------------------------------------------ devices, data
    with watchdog.during("restoring"):
        keep_compiled = cleanup.enter_context(
            compilation_cache(workdir, processes, enabled=config.train.compilation_cache)
        )
    mesh = make_mesh(config.mesh)
    check_settings(config, mesh)  # before the data is made
    plan = plan_state(config, mesh)
    platform = platform_of(mesh.devices.flat[0])
    choices = attention_choices(config.model, platform, config.data.length)
    for choice in dict.fromkeys(choices.values()):
        logger.info("%s", choice)
    checkpoint_seconds = 60 * config.watchdog.checkpoint_minutes
    checkpoints = Checkpoints(
        workdir / CHECKPOINTS, config.checkpoint, processes, checkpoint_seconds
    )

    def close_checkpoints() -> None:
        with watchdog.during("saving"):
            checkpoints.close()

    cleanup.callback(close_checkpoints)

    def check_and_prepare() -> str:
        """Runs in process 0 only: check the config, make missing data, return the tokenizer."""
        check_unchanged(checkpoints.peek_config(), dataclasses.asdict(config))
        check_begun_with(workdir, dataclasses.asdict(config))
        return str(make_dataset(config, workdir, checkpoints.peek_vocabulary()))

    with watchdog.during("preparing data"):
        tokenizer = processes.first("tokenizer and data", check_and_prepare, seconds=None)
    sharding = batch_sharding(mesh)
    shard = host_shard(sharding, config.train.batch_size, processes.index)
    dataset = open_dataset(config, workdir, Path(tokenizer), shard)
    processes.require_same("data", {f"data {k}": v for k, v in dataset.train.state().items()})
    vocabulary_file = dataset.tokenizer.path.read_bytes()

    # ------------------------------------------------------------------ objective, optimizer
    objective = make_objective(config, dataset.tokenizer.word_starts())
    schedule = schedule_of(config, dataset.sequences_per_epoch)
    validation = Validation(config, plan.graph, objective, dataset.validation, mesh)
    position_bias_sizes = PositionBiasSizes(config, plan.graph, objective, mesh)

    # ------------------------------------------------------------------ resume or begin
    with watchdog.during("restoring"):
        restored = checkpoints.restore(plan.abstract_sharded, watchdog.progress)
    writer = MetricWriter(workdir, wandb_project=config.train.wandb_project)
    cleanup.callback(writer.close)
    if restored is None:
        state = plan.create()
        step = 0
    else:
        state, step = restored.state, restored.step
        with watchdog.during("preparing data"):  # the live reader runs its epoch again
            dataset.train.restore(restored.data)
    writer.truncate_after(step)
    start_step = last_saved = step
    # The previous process may have stopped before it evaluated this step.
    last_evaluated = processes.first("last evaluation", lambda: _last_evaluation(workdir))
    stop.has_state = True
    timer = SaveTimer(config.checkpoint.every_minutes if processes.index == 0 else 0.0)
    requests = Requests(stop, timer, mesh)

    # ------------------------------------------------------------------ compile
    progress = Progress(config.train.steps, start=step)
    cleanup.callback(progress.close)
    speed = Speedometer(
        tokens_per_step=config.train.batch_size * config.data.length,
        training_flops_per_token=objective.training_flops_per_token(),
        device_kind=jax.devices()[0].device_kind,
        devices=jax.device_count(),
    )

    @contextmanager
    def compiling(what: str) -> Iterator[None]:
        """Compile, then wait for all processes: Gloo, between CPUs, times out after 30 s."""
        with speed.pause("compile"), watchdog.during("compiling"):
            yield
            keep_compiled()
            processes.gather(f"compiled: {what}", None, 60 * config.watchdog.compile_minutes)

    if step < config.train.steps:
        progress.status("compiling")
        with compiling("the train step"):
            train_step = lower_train_step(config, plan, mesh, objective, schedule).compile()
    speed.start_interval(step)

    # ------------------------------------------------------------------ train
    pending_metrics: deque[tuple[int, Metrics]] = deque()
    profile_at = config.train.profile_at if processes.index == 0 else 0
    profile = cleanup.enter_context(Profile(profile_at, workdir / "profile"))
    spikes = SpikeDetector()
    valid_loss: float | None = None

    def read_metrics(*, up_to: int) -> None:
        """Fetch the metrics of past steps, check all of them, write those of logged steps."""
        while pending_metrics and pending_metrics[0][0] <= up_to:
            metric_step, metrics = pending_metrics.popleft()
            values = {name: float(value) for name, value in jax.device_get(metrics).items()}
            _check_finite(metric_step, values, config)
            if spike := spikes.observe(values["loss"]):
                logger.warning("step %d: %s", metric_step, spike)
            if metric_step % config.train.log_every == 0 or metric_step == config.train.steps:
                measured = speed.measure(metric_step)
                writer.write(metric_step, {**values, **measured})
                progress.report(
                    metric_step,
                    loss=values["loss"],
                    tokens_per_second=measured["tokens_per_second"],
                )

    def save() -> None:
        read_metrics(up_to=step)  # a resumed run does not write them again
        writer.flush()
        with speed.pause("saving"), watchdog.during("saving"):
            checkpoints.save(
                step,
                state,
                data=dataset.train.state(),
                config=dataclasses.asdict(config),
                vocabulary=vocabulary_file,
                valid_loss=valid_loss if last_evaluated == step else None,
                force=True,
            )
            keep_compiled()  # a resumed run needs the programs of checksums
        requests.saved()

    def interrupted() -> bool:
        """Called before every batch of the evaluation."""
        watchdog.progress()
        return requests.agree_to_stop()

    def evaluate() -> None:
        """Validate; if a stop is requested meanwhile, the resumed run does it."""
        nonlocal last_evaluated, valid_loss
        read_metrics(up_to=step)
        params = _averaged_or_current(state)
        if not validation.is_compiled:
            with compiling("the evaluation"):
                validation.compile(params)
                position_bias_sizes.compile(params)
        with speed.pause("evaluation"), watchdog.during("evaluating"):
            valid = validation(params, interrupted)
            bias_sizes = position_bias_sizes(params)
        if valid is not None:
            last_evaluated, valid_loss = step, valid["valid_loss"]
            writer.write(step, {**valid, **bias_sizes})
            logger.info("step %d: validation %s", step, metrics_text(valid))

    def evaluation_due() -> bool:
        return step == config.train.steps or (step > 0 and step % config.eval.every == 0)

    if evaluation_due() and last_evaluated != step:
        evaluate()
    while step < config.train.steps and not requests.agree_to_stop():
        profile.before(step)
        with speed.pause("data"), watchdog.during("reading data"):
            batch = global_batch(sharding, dataset.train.next(), objective, shard)
        state, metrics = block_on_cpu(train_step(state, batch))
        step += 1
        watchdog.step(step)
        pending_metrics.append((step, metrics))
        progress.advance(step)
        last = step == config.train.steps
        # One step late, so that the device has work while the host reads.
        read_metrics(up_to=step - 1)
        if evaluation_due():
            evaluate()
        if last or checkpoints.due(step) or requests.save_agreed:
            save()
            last_saved = step

    # ------------------------------------------------------------------ finish, or stop on request
    if requests.agree_to_stop() and (last_saved < step or step == 0):
        save()
    read_metrics(up_to=step)
    return RunResult(
        step=step,
        finished=step == last_evaluated == config.train.steps,
        resumed_from=start_step,
        exported=objective.to_export(nnx.merge(plan.graph, _averaged_or_current(state))),
        objective=objective,
        dataset=dataset,
        validation=validation,
    )


def _last_evaluation(workdir: Path) -> int:
    """The last step with validation metrics in the metrics file."""
    lines = read_metrics_file(workdir / METRICS_FILE)
    return max((line["step"] for line in lines if "valid_loss" in line), default=0)


def _averaged_or_current(state: TrainState) -> Params:
    return state.params if state.ema is None else state.ema


def _check_finite(step: int, values: dict[str, float], config: Config) -> None:
    in_a_row = int(values["skipped_in_a_row"])
    if not in_a_row:
        return
    logger.warning(
        f"step {step}: loss {values['loss']:.3g}, gradient norm {values['grad_norm']:.3g}: "
        f"no update ({int(values['skipped'])} skipped so far)"
    )
    if in_a_row >= config.train.max_skipped_in_a_row:
        raise DivergedError(
            f"loss or gradient was not finite at {in_a_row} steps in a row, the last one {step}; "
            "the newest checkpoint is valid: lower optimizer.peak_learning_rate or raise "
            "optimizer.warmup in a new --workdir, or check the data"
        )

"""The checks of `tupe rehearse`: each returns findings, and none changes the run.

A check that depends on a failed one is left out: a reader is not measured on data that does not
match the config, and a step that does not fit in memory has no cost.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import jax

from tupe_jax.aot.compile import CompileResult, compile_for, mesh_for
from tupe_jax.aot.step_time import PEAK_SHARE
from tupe_jax.aot.targets import Target
from tupe_jax.checkpointing.manager import newest_step
from tupe_jax.config.schema import Config
from tupe_jax.data.pretraining.readers import PreparedReader
from tupe_jax.data.pretraining.token_shards import PreparedIndex, read_index
from tupe_jax.distributed.hardware import GIB
from tupe_jax.distributed.mesh import batch_sharding
from tupe_jax.distributed.process_group import SINGLE_PROCESS
from tupe_jax.rehearsal.prices import PRICES, Price
from tupe_jax.rehearsal.storage_speed import StorageSpeed, measure_storage
from tupe_jax.run.resume_checks import CONFIG_FILE, check_unchanged, read_settings
from tupe_jax.run.workdir import LOCK_FILE, hold
from tupe_jax.training.dataset import check_given_data, host_shard
from tupe_jax.training.train_state import plan_state
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.object_storage import storage_errors
from tupe_jax.utils.paths import Path, storage_path
from tupe_jax.utils.text import duration, quantity

CHECKS = ("storage", "run", "data", "compile", "reader", "checkpoints", "cost")

T = TypeVar("T")
Verdict = Literal["go", "warning", "no-go"]

BATCHES = 20
"""Read at most so many batches, after the first."""
READING_SECONDS = 20.0
READER_SHARE = 0.7
"""A reader that needs a larger share of a step has little room for slow reads."""
MANY_EPOCHS = 40
"""More passes over the same text than published recipes of this size make."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: str
    verdict: Verdict
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """The measured figures, for `--json`."""


@dataclass(frozen=True)
class Plan:
    """The run that is rehearsed."""

    config: Config
    target: Target
    workdir: Path
    peak_share: float = PEAK_SHARE
    price: Price | None = None
    """None: the listed price of the target's chip, if there is one."""

    @property
    def batch_tokens(self) -> int:
        return self.config.train.batch_size * self.config.data.length


def rehearse(plan: Plan) -> Iterator[Finding]:
    """Yield the findings of all checks, the fast ones first."""
    storage = _attempt("storage", measure_storage, plan.workdir)
    yield storage if isinstance(storage, Finding) else _storage(plan, storage)
    run = _attempt("run", _first_step, plan)
    yield run if isinstance(run, Finding) else _run(plan, run)
    step = 0 if isinstance(run, Finding) else run
    data = _attempt("data", _prepared_index, plan)
    yield data if isinstance(data, Finding) else _data(plan, data)
    compiled = _attempt("compile", _compile, plan)
    yield compiled if isinstance(compiled, Finding) else _memory(compiled)
    if isinstance(compiled, Finding) or not compiled.fits:
        return
    step_seconds = compiled.estimate(plan.peak_share).step_seconds
    if isinstance(data, PreparedIndex):
        reading = _attempt("reader", _reading_seconds, plan, data, compiled)
        yield reading if isinstance(reading, Finding) else _reader(reading, step_seconds)
    if isinstance(storage, StorageSpeed):
        yield _checkpoints(plan, compiled, storage, step_seconds)
    yield _cost(plan, compiled, step_seconds, first_step=step)


def _attempt(check: str, function: Callable[..., T], *arguments: Any) -> T | Finding:
    """The result of a check, or a no-go finding with the message of its `UserError`."""
    try:
        with storage_errors():
            return function(*arguments)
    except UserError as error:
        return Finding(check, "no-go", str(error))


# ------------------------------------------------------------------------------ storage and the run


def _storage(plan: Plan, speed: StorageSpeed) -> Finding:
    return Finding(
        "storage",
        "go",
        f"{plan.workdir} is writable; a small read takes {duration(speed.read_seconds)}; "
        f"it writes {quantity(speed.write_bandwidth)}B/s and reads "
        f"{quantity(speed.read_bandwidth)}B/s",
        dataclasses.asdict(speed),
    )


def _first_step(plan: Plan) -> int:
    """The step from which the run would resume; 0 for a new run."""
    file = plan.workdir / CONFIG_FILE
    if file.exists():
        check_unchanged(read_settings(file), dataclasses.asdict(plan.config))
    if (plan.workdir / LOCK_FILE).exists():
        with hold(plan.workdir, SINGLE_PROCESS):
            pass  # raises if another run holds it
    return newest_step(plan.workdir) or 0


def _run(plan: Plan, step: int) -> Finding:
    steps = plan.config.train.steps
    if step >= steps:
        return Finding("run", "no-go", f"all {steps:,} steps are done; choose another --workdir")
    text = f"resumes at step {step:,} of {steps:,}" if step else f"a new run of {steps:,} steps"
    return Finding("run", "go", text, {"first_step": step})


# --------------------------------------------------------------------------------------------- data


def _prepared_index(plan: Plan) -> PreparedIndex | None:
    """The index of `data.prepared`, after checks; None if the run reads text."""
    config = plan.config
    check_given_data(config, resumes=False)
    return read_index(storage_path(config.data.prepared)) if config.data.prepared else None


def _data(plan: Plan, index: PreparedIndex | None) -> Finding:
    data, train = plan.config.data, plan.config.train
    if index is None:
        builtin = data.task.startswith("builtin")
        return Finding(
            "data",
            "warning" if builtin else "no-go",
            f"data.prepared is not set: every device waits while process 0 prepares {data.task}; "
            "run `tupe prepare` first",
        )
    split = index.splits["train"]
    epochs = train.steps * train.batch_size / max(split.rows, 1)
    values = {"tokens": split.tokens, "shards": len(split.shards), "epochs": epochs}
    text = (
        f"{data.prepared}: {quantity(split.tokens)} tokens in {split.rows:,} sequences and "
        f"{len(split.shards):,} shards, {epochs:.3g} epochs"
    )
    if epochs > MANY_EPOCHS:
        return Finding("data", "warning", f"{text}: few tokens for so many steps", values)
    return Finding("data", "go", text, values)


def _reading_seconds(plan: Plan, index: PreparedIndex, compiled: CompileResult) -> float:
    """The time in which this machine reads one host's shard of a batch."""
    config, mesh = plan.config, compiled.mesh
    reader = PreparedReader(
        storage_path(config.data.prepared),
        index,
        vocabulary_sha256=index.vocabulary_sha256,
        split="train",
        batch_size=config.train.batch_size,
        seed=config.seed,
        host_shard=host_shard(
            batch_sharding(mesh), config.train.batch_size, mesh.devices.flat[0].process_index
        ),
    )
    reader.next()  # opens files
    began, read = time.perf_counter(), 0
    while read < BATCHES and time.perf_counter() - began < READING_SECONDS:
        reader.next()
        read += 1
    return (time.perf_counter() - began) / read


def _reader(seconds: float, step_seconds: float) -> Finding:
    values = {"batch_seconds": seconds, "step_seconds": step_seconds}
    text = (
        f"this machine reads one host's shard of a batch in {duration(seconds)}; "
        f"a step takes {duration(step_seconds)}"
    )
    if seconds > step_seconds:
        text += ": the devices would wait for data; use faster storage, or a copy on each host"
        return Finding("reader", "no-go", text, values)
    tight = seconds > READER_SHARE * step_seconds
    return Finding("reader", "warning" if tight else "go", text, values)


# --------------------------------------------------------------------- memory, checkpoints and cost


def _compile(plan: Plan) -> CompileResult:
    return compile_for(plan.config, plan.target, mesh_for(plan.config, plan.target))


def _memory(result: CompileResult) -> Finding:
    used, memory = result.compiled.peak_bytes, result.target.chip.memory
    text = (
        f"{used / GIB:.2f} of {memory / GIB:.2f} GiB per device, "
        f"{result.attention_implementation} attention, "
        f"compiled in {duration(result.compiled.seconds)}"
    )
    values = {"peak_bytes_per_device": used, "hbm_bytes_per_device": memory}
    if result.fits:
        return Finding("compile", "go", text, values)
    return Finding("compile", "no-go", f"does not fit: {text}; try `tupe compile --fit`", values)


def _checkpoints(
    plan: Plan, compiled: CompileResult, storage: StorageSpeed, step_seconds: float
) -> Finding:
    """The time of a save and a restore if one host writes or reads everything: the slowest case."""
    leaves = jax.tree.leaves(plan_state(plan.config, compiled.mesh).abstract)
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    saving, restoring = size / storage.write_bandwidth, size / storage.read_bandwidth
    settings, limits = plan.config.checkpoint, plan.config.watchdog
    by_time = 60 * settings.every_minutes or math.inf
    interval = min(settings.every * step_seconds, by_time)
    text = (
        f"{quantity(size)}B each, saved in at most {duration(saving)} and restored in at most "
        f"{duration(restoring)}; one every {duration(interval)}, the most that a crash can lose"
    )
    values = {
        "bytes": size,
        "save_seconds": saving,
        "restore_seconds": restoring,
        "interval_seconds": interval,
    }
    if saving > interval:
        text += ": saves take longer; raise checkpoint.every and checkpoint.every_minutes"
        return Finding("checkpoints", "no-go", text, values)
    if limits.stalled_minutes and max(saving, restoring) > 60 * limits.checkpoint_minutes:
        text += (
            f": the watchdog would end the run after {limits.checkpoint_minutes:g} min; raise "
            "watchdog.checkpoint_minutes"
        )
        return Finding("checkpoints", "no-go", text, values)
    return Finding("checkpoints", "go", text, values)


def _cost(plan: Plan, compiled: CompileResult, step_seconds: float, first_step: int) -> Finding:
    """Hours and dollars of the remaining steps and evaluations, without waiting and restarts."""
    config = plan.config
    steps = config.train.steps - first_step
    evaluations = math.ceil(steps / config.eval.every)
    batches = math.ceil(config.eval.rows / config.train.batch_size)
    # A forward pass is a third of a step.
    hours = (steps + evaluations * batches / 3) * step_seconds / 3600
    values: dict[str, Any] = {
        "hours": hours,
        "step_seconds": step_seconds,
        "peak_share": plan.peak_share,
    }
    rate = quantity(compiled.tokens_per_step / step_seconds)
    text = (
        f"about {duration(3600 * hours)} at {rate} tokens/s, if the devices reach "
        f"{100 * plan.peak_share:.3g}% of their peak FLOP/s (assumed, not measured: --peak-share)"
    )
    price = plan.price or PRICES.get(plan.target.chip_name)
    if price is None:
        return Finding("cost", "go", f"{text}; for dollars set --price", values)
    chip_hours = hours * compiled.devices
    values["dollars"] = chip_hours * price.on_demand
    source = "--price" if plan.price else "list price"
    text += f"; ${values['dollars']:,.0f} at ${price.on_demand:.2f} per chip and hour ({source})"
    if price.spot is not None:
        values["dollars_spot"] = chip_hours * price.spot
        text += f", ${values['dollars_spot']:,.0f} on Spot at ${price.spot:.2f}"
    return Finding("cost", "go", text, values)

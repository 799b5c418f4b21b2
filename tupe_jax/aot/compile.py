"""Compiles the train step of a config for a target that need not be attached to this machine."""

import dataclasses
import logging
import math
import pathlib
import re
import tempfile
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from tupe_jax.aot.batch_search import largest_batch
from tupe_jax.aot.hlo import Collective, read_collectives
from tupe_jax.aot.step_time import Estimate, estimate
from tupe_jax.aot.targets import GPUS, Target
from tupe_jax.config.schema import Config, ModelConfig, Remat
from tupe_jax.distributed.hardware import GIB
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.distributed.sharding_rules import LOGICAL_AXES
from tupe_jax.model.attention_backend import Choice, attention_choices
from tupe_jax.model.flops import recomputed_flops_per_token
from tupe_jax.model.positions import encodings
from tupe_jax.objectives.base import Objective
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training.train_state import plan_state
from tupe_jax.training.train_step import (
    batch_shapes,
    check_settings,
    lower_train_step,
    schedule_of,
)
from tupe_jax.utils.errors import UserError

logger = logging.getLogger(__name__)

CHEAPEST_FIRST: tuple[Remat, ...] = ("none", "dots", "projections", "full")

GPU_KERNELS = "gpu_attention_"
"""The names of our kernels for GPUs begin with it."""

CUDNN_WORKSPACE = "cuDNN"
"""A kind of memory that the compiler does not count without a GPU."""


@dataclass(frozen=True)
class CompiledStep:
    """What a compiled train step needs on each device."""

    memory: Mapping[str, int]
    """HBM bytes by kind: the arguments, temporaries, program. They add up to the peak."""
    collectives: list[Collective] | None
    """None if the compiler ran out of memory."""
    seconds: float
    """Compile time."""
    architectures: frozenset[str] = frozenset()
    """GPUs: those of the generated code, such as sm_90a."""

    @property
    def peak_bytes(self) -> int:
        return sum(self.memory.values())


@dataclass(frozen=True)
class CompileResult:
    """The train step of a config, compiled for a target."""

    config: Config
    target: Target
    mesh: Mesh
    compiled: CompiledStep

    def __str__(self) -> str:
        return (
            f"remat {self.config.model.remat}, batch of {self.batch_per_device:,} per device: "
            f"{self.compiled.peak_bytes / GIB:.2f} of {self.target.chip.memory / GIB:.2f} GiB, "
            f"{'fits' if self.fits else 'does not fit'} ({self.compiled.seconds:.0f} s)"
        )

    @property
    def devices(self) -> int:
        return int(self.mesh.size)

    @property
    def batch_per_device(self) -> int:
        """Sequences in one pass: in a micro-batch, if there are several."""
        return batch_per_device(self.config, self.mesh)

    @property
    def spare_bytes(self) -> int:
        """Free memory of a device; negative if the step does not fit."""
        if self.compiled.collectives is None:  # the compiler refused, whatever its count
            return min(self.target.chip.memory - self.compiled.peak_bytes, -1)
        return self.target.chip.memory - self.compiled.peak_bytes

    @property
    def fits(self) -> bool:
        return self.spare_bytes >= 0

    @property
    def tokens_per_step(self) -> int:
        return self.config.train.batch_size * self.config.data.length

    @property
    def attention(self) -> tuple[Choice, ...]:
        """What was compiled for attention: one choice per kernel, all of one implementation."""
        config = self.config
        choices = attention_choices(config.model, self.target.chip.platform, config.data.length)
        return tuple(dict.fromkeys(choices.values()))

    @property
    def attention_implementation(self) -> str:
        return self.attention[0].implementation

    @property
    def flops_per_step(self) -> float:
        """The model FLOPs, counted from the shapes."""
        return self.tokens_per_step * self.objective.training_flops_per_token()

    @property
    def objective(self) -> Objective:
        return make_objective(self.config)

    def estimate(self, peak_share: float) -> Estimate:
        """The time that a step would take."""
        by_kernel = self.attention_implementation == "pallas"
        again = sum(
            recomputed_flops_per_token(network, self.config.data.length, by_kernel=by_kernel)
            for network in self.objective.networks()
        )
        return estimate(
            self.target.chip,
            flops_per_device=self.flops_per_step / self.devices,
            recomputed_per_device=again * self.tokens_per_step / self.devices,
            collectives=self.compiled.collectives or [],
            peak_share=peak_share,
        )


def mesh_for(config: Config, target: Target) -> Mesh:
    """The config's mesh on the target's devices, with as many slices as the config sets."""
    return make_mesh(config.mesh, target.devices(max(config.mesh.slice, 1)))


def compile_for(config: Config, target: Target, mesh: Mesh) -> CompileResult:
    """Compile the step of `tupe pretrain`; no data is needed. It may need too much memory."""
    check_settings(config, mesh)
    plan = plan_state(config, mesh)
    # Of the vocabulary and the corpus only sizes matter here.
    objective = make_objective(config, [True] * config.model.vocab_size)
    schedule = schedule_of(config, sequences_per_epoch=1)
    state = plan.abstract_sharded
    platform, length = target.chip.platform, config.data.length
    choices = attention_choices(config.model, platform, length).values()
    compiled = _compile(
        lower_train_step(config, plan, mesh, objective, schedule),
        mesh,
        target,
        {
            "parameters": state.params,
            "optimizer": state.opt_state,
            **({} if state.ema is None else {"average": state.ema}),
            "batch": batch_shapes(config, mesh, objective),
        },
        kernels={GPU_KERNELS} if any(choice.kernel == "gpu" for choice in choices) else set(),
    )
    result = CompileResult(config, target, mesh, compiled)
    if result.attention_implementation != "cudnn":
        return result
    heads = math.prod(mesh.shape[axis] for axis in LOGICAL_AXES["heads"])
    workspace = max(
        cudnn_workspace(network, result.batch_per_device, config.data.length) // heads
        for network in objective.networks()
    )
    memory = {**compiled.memory, CUDNN_WORKSPACE: workspace}
    return dataclasses.replace(result, compiled=dataclasses.replace(compiled, memory=memory))


def cudnn_workspace(model: ModelConfig, batch: int, length: int) -> int:
    """The bytes that cuDNN needs beside XLA's temporaries, in the backward pass of one layer.

    A formula: for the gradient of the bias cuDNN writes B x H x S x S numbers of two bytes. cuDNN
    itself answers 385.5 MiB for 64 x 512 tokens and 12 heads, where the formula gives 384.
    """
    has_bias = any(encoding.has_bias for encoding in encodings(model).values())
    if model.attention_dropout or not has_bias:  # with dropout XLA is used in training
        return 0
    return 2 * batch * model.num_heads * length**2


def _compile(
    lowered: jax.stages.Lowered,
    mesh: Mesh,
    target: Target,
    trees: Mapping[str, Any],
    kernels: AbstractSet[str],
) -> CompiledStep:
    """`trees` are the arguments by kind, of `jax.ShapeDtypeStruct`s with shardings.

    `kernels` are names with which kernels for GPUs begin that the program must contain.
    """
    arguments = {kind: bytes_per_device(tree) for kind, tree in trees.items()}
    began = time.monotonic()
    try:
        compiled, architectures = _compiled_with_architectures(lowered, target, kernels)
    except jax.errors.JaxRuntimeError as error:
        needed = _needed_bytes(str(error))
        others = max(needed - sum(arguments.values()), 0)
        memory = {**arguments, "temporaries": others}
        return CompiledStep(memory, None, time.monotonic() - began)
    seconds = time.monotonic() - began
    sizes: Any = compiled.memory_analysis()
    results = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    memory = {
        **arguments,
        # Some arrays are padded to the hardware's tiles.
        "padding": sizes.argument_size_in_bytes - sum(arguments.values()),
        "temporaries": sizes.temp_size_in_bytes + results,
        "program": sizes.generated_code_size_in_bytes,
    }
    domains = [domain(device) for device in mesh.devices.flat]
    collectives = read_collectives(compiled.as_text() or "", domains)
    return CompiledStep(memory, collectives, seconds, architectures)


def _compiled_with_architectures(
    lowered: jax.stages.Lowered, target: Target, kernels: AbstractSet[str]
) -> tuple[jax.stages.Compiled, frozenset[str]]:
    """Compile; for a GPU, raise unless the code of all kernels is seen to be for it."""
    if target.chip.platform != "gpu":
        return lowered.compile(), frozenset()
    with tempfile.TemporaryDirectory() as folder:
        compiled = lowered.compile(compiler_options={"xla_dump_to": folder})
        code = gpu_code(pathlib.Path(folder))
    expected = GPUS[target.chip_name].architecture
    if others := code.architectures - {expected}:
        raise UserError(
            f"--target={target.name}: the compiler made code for {', '.join(sorted(others))}, not "
            f"for {expected}; install the versions of jax and jaxlib in constraints.txt"
        )
    unseen = [name for name in kernels if not any(k.startswith(name) for k in code.kernels)]
    if unseen or not code.architectures:
        raise UserError(
            f"--target={target.name}: cannot check for which GPU the code is, because the compiler "
            f"showed no code{' of ' + unseen[0] if unseen else ''}; unset "
            "JAX_COMPILATION_CACHE_DIR, and install the versions of jax and jaxlib in "
            "constraints.txt"
        )
    return compiled, code.architectures


@dataclass(frozen=True)
class GpuCode:
    """The PTX code of a program."""

    architectures: frozenset[str]
    """The GPUs it is for, such as sm_90a."""
    kernels: frozenset[str]


def gpu_code(dump: pathlib.Path) -> GpuCode:
    """What XLA wrote to a folder; nothing if JAX took the program from a cache."""
    text = "\n".join(file.read_text() for file in sorted(dump.glob("*.ptx")))
    return GpuCode(
        frozenset(re.findall(r"^\.target (\w+)", text, re.MULTILINE)),
        frozenset(re.findall(r"\.entry (\w+)", text)),
    )


def fit(
    config: Config, target: Target, mesh: Mesh, known: CompileResult | None = None
) -> CompileResult:
    """The cheapest remat policy under which the batch fits, then with the largest batch.

    If the batch fits under no policy: the largest batch under the policy that saves most memory.
    `known` is a result that need not be compiled again.
    """
    results: dict[tuple[Remat, int], CompileResult] = {}
    if known is not None:
        results[known.config.model.remat, known.batch_per_device] = known

    def result(remat: Remat, batch: int) -> CompileResult:
        if (remat, batch) not in results:
            model = dataclasses.replace(config.model, remat=remat)
            changed = with_batch(dataclasses.replace(config, model=model), batch, mesh)
            results[remat, batch] = compile_for(changed, target, mesh)
            logger.info("%s", results[remat, batch])
        return results[remat, batch]

    start = batch_per_device(config, mesh)
    policy = next((p for p in CHEAPEST_FIRST if result(p, start).fits), CHEAPEST_FIRST[-1])
    memory = target.chip.memory
    most = largest_batch(
        lambda batch: memory - result(policy, batch).spare_bytes, limit=memory, start=start
    )
    return result(policy, max(most, 1))


def batch_per_device(config: Config, mesh: Mesh) -> int:
    return config.train.batch_size // config.train.accumulate // _shards(mesh)


def with_batch(config: Config, batch: int, mesh: Mesh) -> Config:
    """The config with `batch` sequences per device and micro-batch."""
    batch_size = batch * _shards(mesh) * config.train.accumulate
    return dataclasses.replace(
        config, train=dataclasses.replace(config.train, batch_size=batch_size)
    )


def accumulation_for(requested: CompileResult, batch: int) -> int | None:
    """The least `train.accumulate` with at most `batch` sequences on a device."""
    each = requested.config.train.batch_size // _shards(requested.mesh)
    return next((n for n in range(1, each + 1) if each % n == 0 and each // n <= batch), None)


def _shards(mesh: Mesh) -> int:
    """The number of devices that a batch is divided among."""
    return math.prod(mesh.shape[axis] for axis in LOGICAL_AXES["batch"])


def bytes_per_device(tree: Any) -> int:
    """The bytes of sharded arrays on one device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def domain(device: Any) -> int:
    """Devices of one domain have fast links: the slice of a TPU, the host of a GPU."""
    index: int = (
        device.process_index if device.platform == "gpu" else getattr(device, "slice_index", 0)
    )
    return index


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"(\d+(?:\.\d+)?)([KMGT]?)"


def _needed_bytes(message: str) -> int:
    """The memory that the program needs, from the compiler's error message."""
    if "RESOURCE_EXHAUSTED" not in message:
        raise UserError(f"the compiler failed: {message.strip().splitlines()[0]}")
    for pattern in (
        rf"Used {_SIZE}i?B? of {_SIZE}i?B? hbm",  # not vmem: a smaller batch would not help
        rf"required for .*?\({_SIZE}\) exceeds",
    ):
        if found := re.search(pattern, message):
            return int(float(found.group(1)) * _UNITS[found.group(2)])
    raise UserError(f"the compiler ran out of memory: {message.strip().splitlines()[0]}")

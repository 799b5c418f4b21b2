"""The output of `tupe compile`: a page, or one JSON object."""

import json
from collections.abc import Iterator
from typing import Any

from tupe_jax.aot.compile import CUDNN_WORKSPACE, CompileResult, accumulation_for
from tupe_jax.aot.hlo import KINDS, Collective
from tupe_jax.aot.step_time import LINK_SHARE
from tupe_jax.distributed.hardware import GIB
from tupe_jax.utils.text import quantity


def as_json(requested: CompileResult, fitting: CompileResult | None, peak_share: float) -> str:
    """One object; its `fit` is the choice of --fit."""
    values = _values(requested, peak_share)
    if fitting is not None:
        values["fit"] = _choice(requested, fitting)
    return json.dumps(values)


def as_text(requested: CompileResult, fitting: CompileResult | None, peak_share: float) -> str:
    """A page; if the config does not fit, with the choice of --fit."""
    lines = [*_head(requested), "", *_memory(requested)]
    if requested.fits:
        lines += ["", *_collectives(requested), "", *_times(requested, peak_share)]
    if fitting is not None:
        lines += ["", *_advice(requested, fitting)]
    return "\n".join(lines)


def _head(result: CompileResult) -> Iterator[str]:
    config = result.config
    axes = ", ".join(f"{axis} {size}" for axis, size in result.mesh.shape.items() if size > 1)
    passes = "" if config.train.accumulate == 1 else f" in {config.train.accumulate} passes"
    if result.fits:
        yield f"{result.target.name}: fits, {_gib(result.spare_bytes)} GiB to spare"
    else:
        yield f"{result.target.name}: does not fit, by {-result.spare_bytes:,} bytes"
    yield f"  devices        {result.devices} x {result.mesh.devices.flat[0].device_kind}"
    yield f"  mesh           {axes or 'one device'}"
    yield (
        f"  batch          {_sequences(config.train.batch_size)} of {config.data.length} tokens"
        f"{passes}, {result.batch_per_device} per device"
    )
    yield f"  layers         {config.model.num_layers}, remat {config.model.remat}"
    for choice in result.attention:
        yield f"  attention      {choice.implementation}: {choice.reason}"
    if result.target.chip.platform == "gpu":
        names = ", ".join(sorted(result.compiled.architectures))
        yield f"  code for       {names or 'not known: compiled before, in a cache of JAX'}"
    yield f"  compiled in    {result.compiled.seconds:.0f} s"


def _memory(result: CompileResult) -> Iterator[str]:
    peak, memory = result.compiled.peak_bytes, result.target.chip.memory
    unit, size = ("GiB", GIB) if peak >= GIB else ("MiB", 2**20)
    yield f"HBM per device, {unit}"
    for kind, needed in result.compiled.memory.items():
        yield f"  {kind:<12}{needed / size:9.2f}"
    yield f"  {'together':<12}{peak / size:9.2f}  of {memory / size:,.2f}"
    if CUDNN_WORKSPACE in result.compiled.memory:
        yield "  cuDNN's workspace follows from a formula; without a GPU its calls are not checked"


def _collectives(result: CompileResult) -> Iterator[str]:
    yield "collectives               runs  MiB sent per device and step"
    for kind, runs, sent in _by_kind(result.compiled.collectives or []):
        yield f"  {kind:<20}{runs:8}{sent / 2**20:12.1f}"
    if not result.compiled.collectives:
        yield "  none"


def _times(result: CompileResult, peak_share: float) -> Iterator[str]:
    times, chip = result.estimate(peak_share), result.target.chip
    per_device = result.flops_per_step / result.devices
    tokens_per_second = result.tokens_per_step / times.step_seconds
    yield "a step, ms"
    yield (
        f"  compute     {1e3 * times.compute_seconds:9.2f}  bound: {per_device / 1e12:.2f} TFLOP "
        f"per device at {chip.peak_flops / 1e12:.0f} TFLOP/s"
    )
    yield (
        f"  collectives {1e3 * times.collective_seconds:9.2f}  bound: links at "
        f"{chip.link_bandwidth / 1e9:.0f} GB/s{_network(result)}"
    )
    yield (
        f"  estimate    {1e3 * times.step_seconds:9.2f}  assumed: {peak_share:.0%} of the peak, "
        f"then {LINK_SHARE:.0%} of the links; nothing overlaps"
    )
    yield (
        f"  {quantity(tokens_per_second)} tokens/s, MFU {times.mfu:.0%}; "
        f"{result.config.train.steps:,} steps of {quantity(result.tokens_per_step)} tokens in "
        f"{_hours(result, peak_share):.1f} hours"
    )


def _network(result: CompileResult) -> str:
    far = any(c.neighbours < c.members for c in result.compiled.collectives or [])
    return f", network at {result.target.chip.network_bandwidth / 1e9:.0f} GB/s" if far else ""


def _advice(requested: CompileResult, fitting: CompileResult) -> Iterator[str]:
    if not fitting.fits:
        yield "--fit: a single sequence does not fit; shard more (mesh.fsdp, mesh.tensor)"
        return
    batch = _sequences(fitting.batch_per_device)
    yield (
        f"--fit: remat {fitting.config.model.remat}, {batch} per device "
        f"({_gib(fitting.compiled.peak_bytes)} GiB)"
    )
    choice = _choice(requested, fitting)
    remat = f"--config.model.remat={choice['remat']}"
    yield f"  {remat} --config.train.batch_size={choice['batch_size']}"
    if choice["accumulate_for_same_batch"] is not None and not requested.fits:
        yield "  or, for the same batch as requested:"
        yield f"  {remat} --config.train.accumulate={choice['accumulate_for_same_batch']}"


def _choice(requested: CompileResult, fitting: CompileResult) -> dict[str, Any]:
    return {
        "fits": fitting.fits,
        "remat": fitting.config.model.remat,
        "batch_per_device": fitting.batch_per_device,
        "batch_size": fitting.config.train.batch_size,
        "accumulate_for_same_batch": None
        if requested is fitting  # --fit chose it
        else accumulation_for(requested, fitting.batch_per_device),
        "peak_bytes_per_device": fitting.compiled.peak_bytes,
    }


def _values(result: CompileResult, peak_share: float) -> dict[str, Any]:
    collectives = result.compiled.collectives
    values = {
        "target": result.target.name,
        "device_kind": result.mesh.devices.flat[0].device_kind,
        "devices": result.devices,
        "mesh": dict(result.mesh.shape),
        "batch_size": result.config.train.batch_size,
        "batch_per_device": result.batch_per_device,
        "length": result.config.data.length,
        "remat": result.config.model.remat,
        "attention": result.attention_implementation,
        "architectures": sorted(result.compiled.architectures),
        "fits": result.fits,
        "missing_bytes_per_device": max(-result.spare_bytes, 0),
        "peak_bytes_per_device": result.compiled.peak_bytes,
        "hbm_bytes_per_device": result.target.chip.memory,
        "memory_by_kind": dict(result.compiled.memory),
        "flops_per_step": result.flops_per_step,
        "compile_seconds": result.compiled.seconds,
        "collective_bytes_per_step": None,
    }
    if collectives is None:
        return values
    times = result.estimate(peak_share)
    return values | {
        "collective_bytes_per_step": sum(c.times * c.sent_bytes for c in collectives),
        "collectives": {
            kind: {"runs": runs, "sent_bytes": sent} for kind, runs, sent in _by_kind(collectives)
        },
        "compute_bound_seconds": times.compute_seconds,
        "collective_bound_seconds": times.collective_seconds,
        "assumed_peak_share": peak_share,
        "assumed_link_share": LINK_SHARE,
        "step_seconds": times.step_seconds,
        "tokens_per_second": result.tokens_per_step / times.step_seconds,
        "mfu": times.mfu,
        "hours": _hours(result, peak_share),
    }


def _by_kind(collectives: list[Collective]) -> Iterator[tuple[str, int, float]]:
    for kind in KINDS:
        same = [c for c in collectives if c.kind == kind]
        if same:
            yield kind, sum(c.times for c in same), sum(c.times * c.sent_bytes for c in same)


def _hours(result: CompileResult, peak_share: float) -> float:
    return result.config.train.steps * result.estimate(peak_share).step_seconds / 3600


def _sequences(count: int) -> str:
    return f"{count:,} sequence{'s' if count > 1 else ''}"


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"

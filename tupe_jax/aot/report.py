"""What `tupe compile` prints: a page to read, or one JSON object."""

import json
from collections.abc import Iterator
from typing import Any

from tupe_jax.aot.collectives import KINDS, Collective
from tupe_jax.aot.compile import Answer, passes_for_same_batch
from tupe_jax.aot.step_time import LINK_SHARE

GIB = 2**30


def as_json(asked: Answer, fitting: Answer | None, peak_share: float) -> str:
    """One object; `fit` is what --fit chose or would choose."""
    values = _values(asked, peak_share)
    if fitting is not None:
        values["fit"] = _choice(asked, fitting)
    return json.dumps(values)


def as_text(asked: Answer, fitting: Answer | None, peak_share: float) -> str:
    """A page; of what does not fit, what --fit would choose instead."""
    lines = [*_head(asked), "", *_memory(asked)]
    if asked.fits:
        lines += ["", *_collectives(asked), "", *_times(asked, peak_share)]
    if fitting is not None:
        lines += ["", *_advice(asked, fitting)]
    return "\n".join(lines)


def one_line(answer: Answer) -> str:
    """While searching."""
    return (
        f"remat {answer.config.model.remat}, {_rows(answer.rows_per_device)} per device: "
        f"{_gib(answer.compiled.peak_bytes)} of {_gib(answer.target.chip.memory)} GiB, "
        f"{'fits' if answer.fits else 'does not fit'} ({answer.compiled.seconds:.0f} s)"
    )


def _head(answer: Answer) -> Iterator[str]:
    config = answer.config
    axes = ", ".join(f"{axis} {size}" for axis, size in answer.mesh.shape.items() if size > 1)
    passes = "" if config.train.accumulate == 1 else f" in {config.train.accumulate} passes"
    if answer.fits:
        yield f"{answer.target.name}: fits, {_gib(answer.spare_bytes)} GiB to spare"
    else:
        yield f"{answer.target.name}: does not fit, by {-answer.spare_bytes:,} bytes"
    yield f"  devices        {answer.devices} x {answer.mesh.devices.flat[0].device_kind}"
    yield f"  mesh           {axes or 'one device'}"
    yield (
        f"  batch          {_rows(config.train.batch_size)} of {config.data.length} tokens"
        f"{passes}, {answer.rows_per_device} per device"
    )
    yield f"  layers         {config.model.num_layers}, remat {config.model.remat}"
    yield f"  attention      {answer.attention.implementation}: {answer.attention.reason}"
    yield f"  compiled in    {answer.compiled.seconds:.0f} s"


def _memory(answer: Answer) -> Iterator[str]:
    peak, memory = answer.compiled.peak_bytes, answer.target.chip.memory
    unit, size = ("GiB", GIB) if peak >= GIB else ("MiB", 2**20)
    yield f"HBM per device, {unit}"
    for kind, needed in answer.compiled.memory.items():
        yield f"  {kind:<12}{needed / size:9.2f}"
    yield f"  {'together':<12}{peak / size:9.2f}  of {memory / size:,.2f}"


def _collectives(answer: Answer) -> Iterator[str]:
    yield "collectives               runs  MiB sent per device and step"
    for kind, runs, sent in _by_kind(answer.compiled.collectives or []):
        yield f"  {kind:<20}{runs:8}{sent / 2**20:12.1f}"
    if not answer.compiled.collectives:
        yield "  none"


def _times(answer: Answer, peak_share: float) -> Iterator[str]:
    times, chip = answer.estimate(peak_share), answer.target.chip
    per_device = answer.flops_per_step / answer.devices
    tokens_per_second = answer.tokens_per_step / times.step_seconds
    yield "a step, ms"
    yield (
        f"  compute     {1e3 * times.compute_seconds:9.2f}  bound: {per_device / 1e12:.2f} TFLOP "
        f"per device at {chip.peak_flops / 1e12:.0f} TFLOP/s"
    )
    yield (
        f"  collectives {1e3 * times.collective_seconds:9.2f}  bound: links at "
        f"{chip.link_bandwidth / 1e9:.0f} GB/s{_network(answer)}"
    )
    yield (
        f"  estimate    {1e3 * times.step_seconds:9.2f}  assumed: {peak_share:.0%} of the peak, "
        f"then {LINK_SHARE:.0%} of the links; nothing overlaps"
    )
    yield (
        f"  {_short(tokens_per_second)} tokens/s, MFU {times.mfu:.0%}; "
        f"{answer.config.train.steps:,} steps of {_short(answer.tokens_per_step)} tokens in "
        f"{_hours(answer, peak_share):.1f} hours"
    )


def _network(answer: Answer) -> str:
    far = any(c.neighbours < c.members for c in answer.compiled.collectives or [])
    return f", network at {answer.target.chip.network_bandwidth / 1e9:.0f} GB/s" if far else ""


def _advice(asked: Answer, fitting: Answer) -> Iterator[str]:
    if not fitting.fits:
        yield "--fit: not even one row fits; shard more (mesh.fsdp, mesh.tensor)"
        return
    yield (
        f"--fit: remat {fitting.config.model.remat}, {_rows(fitting.rows_per_device)} per device "
        f"({_gib(fitting.compiled.peak_bytes)} GiB)"
    )
    choice = _choice(asked, fitting)
    remat = f"--config.model.remat={choice['remat']}"
    yield f"  {remat} --config.train.batch_size={choice['batch_size']}"
    if choice["accumulate_for_same_batch"] is not None and not asked.fits:
        yield "  or, for the same batch as asked for:"
        yield f"  {remat} --config.train.accumulate={choice['accumulate_for_same_batch']}"


def _choice(asked: Answer, fitting: Answer) -> dict[str, Any]:
    return {
        "fits": fitting.fits,
        "remat": fitting.config.model.remat,
        "batch_per_device": fitting.rows_per_device,
        "batch_size": fitting.config.train.batch_size,
        "accumulate_for_same_batch": None
        if asked is fitting  # found, not asked for
        else passes_for_same_batch(asked, fitting.rows_per_device),
        "peak_bytes_per_device": fitting.compiled.peak_bytes,
    }


def _values(answer: Answer, peak_share: float) -> dict[str, Any]:
    collectives = answer.compiled.collectives
    values = {
        "target": answer.target.name,
        "device_kind": answer.mesh.devices.flat[0].device_kind,
        "devices": answer.devices,
        "mesh": dict(answer.mesh.shape),
        "batch_size": answer.config.train.batch_size,
        "batch_per_device": answer.rows_per_device,
        "length": answer.config.data.length,
        "remat": answer.config.model.remat,
        "attention": answer.attention.implementation,
        "fits": answer.fits,
        "missing_bytes_per_device": max(-answer.spare_bytes, 0),
        "peak_bytes_per_device": answer.compiled.peak_bytes,
        "hbm_bytes_per_device": answer.target.chip.memory,
        "memory_by_kind": dict(answer.compiled.memory),
        "flops_per_step": answer.flops_per_step,
        "compile_seconds": answer.compiled.seconds,
        "collective_bytes_per_step": None,
    }
    if collectives is None:
        return values
    times = answer.estimate(peak_share)
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
        "tokens_per_second": answer.tokens_per_step / times.step_seconds,
        "mfu": times.mfu,
        "hours": _hours(answer, peak_share),
    }


def _by_kind(collectives: list[Collective]) -> Iterator[tuple[str, int, float]]:
    for kind in KINDS:
        same = [c for c in collectives if c.kind == kind]
        if same:
            yield kind, sum(c.times for c in same), sum(c.times * c.sent_bytes for c in same)


def _hours(answer: Answer, peak_share: float) -> float:
    return answer.config.train.steps * answer.estimate(peak_share).step_seconds / 3600


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count > 1 else ''}"


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"


def _short(number: float) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f}"

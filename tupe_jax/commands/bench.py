"""Benchmark one component on this machine: warm-up, several repeats, median and range.

  tupe bench step --config=tupe_r:tiny           the training step; also: forward, attention
  tupe bench step --shapes=16x128,4x512 --json   sequences x tokens; one JSON object per line
  tupe bench step --against=transformers         interleaved with Hugging Face's BERT of that size
  tupe bench reader --data=rows                  your own prepared data (default: random)
  tupe bench reader --latency=30ms --batch-size=2048 --hosts=64   a mounted bucket, one of 64 hosts
  tupe bench checkpoint --config=tupe_r:tiny     the cost of an asynchronous save
  tupe bench start --config=tupe_r:tiny          from the command to the first step

`step` is masking, forward, backward and update; `forward` computes hidden states without dropout;
`attention` is one layer's attention with its projections, forward and backward. FLOPs are counted
from the model; the peak is the best of large matrix products in the same process. `reader` reads
prepared data up to int32 batches in memory, and times resuming at an early and at a late step;
with `--latency` every read of a file takes longer, as from a mounted bucket.
`checkpoint` times training steps with and without a concurrent save. `start` starts `tupe pretrain`
and stops it after the first step: a new run, a new run that finds its compiled programs, and a run
that resumes.
"""

import argparse
import json
import re
import statistics
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.host_memory import keep_freed_memory
from tupe_jax.utils.paths import Path, storage_path

if TYPE_CHECKING:
    from tupe_jax.config.schema import Config

RANDOM_ROWS = 40_000
RANDOM_LENGTH = 512
# As many as a large corpus has: each sequence of a batch is in another file.
RANDOM_SHARDS = 600

Result = tuple[dict[str, Any], str]
"""A measurement as JSON and as a line of text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=[*MODEL_COMPONENTS, *OTHERS], help="the component to measure"
    )
    parser.add_argument("--config", default="quickstart", help="the model (default: quickstart)")
    parser.add_argument("--shapes", help="model components: sequences x tokens, as in 16x128,4x512")
    parser.add_argument(
        "--against", choices=["transformers"], help="step: the implementation to compare with"
    )
    parser.add_argument(
        "--data", type=storage_path, help="reader: a folder written by `tupe prepare`"
    )
    parser.add_argument(
        "--batch-size", type=int, default=256, help="reader: sequences per batch (default: 256)"
    )
    parser.add_argument(
        "--hosts", type=int, default=1, help="reader: number of hosts; read the part of one"
    )
    parser.add_argument(
        "--latency",
        type=_seconds,
        default=0.0,
        help="reader: time to add to each read, such as 30ms",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(arguments: argparse.Namespace) -> None:
    if arguments.against and arguments.what != "step":
        raise UserError(f"--against works with `tupe bench step`, not with {arguments.what}")
    keep_freed_memory()  # as `tupe pretrain` does
    measure = OTHERS.get(arguments.what, _model_component)
    for values, text in measure(arguments):
        print(json.dumps(values) if arguments.json else text, flush=True)


def _config(arguments: argparse.Namespace) -> "Config":
    from tupe_jax.config.loading import from_config_dict, load_config

    return from_config_dict(load_config(arguments.config, arguments.overrides))


def _model_component(arguments: argparse.Namespace) -> Iterator[Result]:
    from tupe_jax.bench import transformers_bert
    from tupe_jax.bench.model_speed import MODEL_BENCHMARKS, with_shape
    from tupe_jax.bench.timing import Speed, measured_matmul_peak, seconds_in_turns

    config, benchmark = _config(arguments), MODEL_BENCHMARKS[arguments.what]
    shapes = _shapes(arguments.shapes) if arguments.shapes else [None]
    peak = measured_matmul_peak(config.model.dtype)
    for shape in shapes:
        shaped = config if shape is None else with_shape(config, *shape)
        works = {arguments.what: benchmark.make(shaped)}
        if arguments.against:
            works["transformers"] = transformers_bert.training_step(shaped)
        rows, length = shaped.train.batch_size, shaped.data.length
        speeds = {
            name: Speed(
                what=name,
                shape=(rows, length),
                tokens_per_second=tuple(rows * length / s for s in seconds),
                # Both with the FLOPs of our model: the speed of the same work.
                flops_per_token=benchmark.flops_per_token(shaped),
                matmul_peak=peak,
            )
            for name, seconds in seconds_in_turns(works).items()
        }
        for speed in speeds.values():
            yield speed.as_json(), str(speed)
        if arguments.against:
            pairs = zip(*(speed.tokens_per_second for speed in speeds.values()), strict=True)
            ratios = [ours / theirs for ours, theirs in pairs]
            ratio = statistics.median(ratios)
            yield (
                {**speeds["step"].as_json(), "what": "ratio", "ratio": ratio, "ratios": ratios},
                f"ratio {rows} x {length}: {ratio:.2f} times as fast as transformers "
                f"({min(ratios):.2f} to {max(ratios):.2f})",
            )


def _shapes(text: str) -> list[tuple[int, int]]:
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*(,[1-9]\d*x[1-9]\d*)*", text):
        raise UserError(f"--shapes={text} must be sequences x tokens, as in --shapes=16x128,4x512")
    sizes = [shape.split("x") for shape in text.split(",")]
    return [(int(rows), int(length)) for rows, length in sizes]


def _seconds(text: str) -> float:
    if not (match := re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30ms or 0.5s")
    return float(match[1]) * {"ms": 1e-3, "s": 1.0}[match[2]]


def _reader(arguments: argparse.Namespace) -> Iterator[Result]:
    from tupe_jax.bench.reader_speed import measure_reader, write_random_sequences

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.data or Path(temporary)
        if not arguments.data:
            write_random_sequences(
                folder, rows=RANDOM_ROWS, length=RANDOM_LENGTH, shards=RANDOM_SHARDS
            )
        speed = measure_reader(
            folder, arguments.batch_size, hosts=arguments.hosts, latency=arguments.latency
        )
    resume = ", ".join(
        f"{seconds:.3f} s at step {step:,}" for step, seconds in speed.resume_seconds.items()
    )
    yield (
        {
            **speed.reading.as_json(),
            "batch_seconds": speed.batch_seconds,
            "memory_bytes": speed.memory_bytes,
            "resume_seconds": speed.resume_seconds,
        },
        f"{speed.reading}; {statistics.median(speed.batch_seconds) * 1e3:.1f} ms per batch, "
        f"{speed.memory_bytes / 2**20:.0f} MiB; resumes in {resume}",
    )


def _checkpoint(arguments: argparse.Namespace) -> Iterator[Result]:
    from tupe_jax.bench.save_speed import measure_checkpoint
    from tupe_jax.bench.timing import Speed

    config = _config(arguments)
    with tempfile.TemporaryDirectory() as folder:
        speed = measure_checkpoint(config, Path(folder))
    shape = (config.train.batch_size, config.data.length)
    steps_alone = Speed("checkpoint", shape, (shape[0] * shape[1] / speed.step_seconds,))
    extra = statistics.median(speed.extra_seconds)
    blocked = statistics.median(speed.blocked_seconds)
    values = {
        **steps_alone.as_json(),
        "step_seconds": speed.step_seconds,
        "blocked_seconds": blocked,
        "extra_seconds": extra,
        "lowest": min(speed.extra_seconds),
        "highest": max(speed.extra_seconds),
        "every": speed.every,
        "share": speed.share,
    }
    yield (
        values,
        f"checkpoint: a save blocks {blocked:.3f} s and costs {extra:.3f} s in total (median of "
        f"{len(speed.extra_seconds)}, {min(speed.extra_seconds):.3f} to "
        f"{max(speed.extra_seconds):.3f}); every {speed.every} steps of {speed.step_seconds:.3f} s "
        f"that is {speed.share:.2%}",
    )


def _start(arguments: argparse.Namespace) -> Iterator[Result]:
    from tupe_jax.bench.start_speed import KINDS, measure_starts

    config = _config(arguments)
    command = [f"--config={arguments.config}", *arguments.overrides]
    with tempfile.TemporaryDirectory() as folder:
        times = measure_starts(config, command, Path(folder))
    for kind, starts in times.items():
        seconds = [start.seconds for start in starts]
        cpu_seconds = [start.cpu_seconds for start in starts]
        values = {
            "what": kind,
            "seconds": statistics.median(seconds),
            "lowest": min(seconds),
            "highest": max(seconds),
            "cpu_seconds": statistics.median(cpu_seconds),
        }
        yield (
            values,
            f"{kind:<8}{values['seconds']:6.1f} s ({min(seconds):.1f} to {max(seconds):.1f}, "
            f"median of {len(seconds)}), {values['cpu_seconds']:5.1f} s of CPU time: {KINDS[kind]}",
        )


MODEL_COMPONENTS = ("step", "forward", "attention")
OTHERS = {"reader": _reader, "checkpoint": _checkpoint, "start": _start}

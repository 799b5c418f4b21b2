"""Measure the speed of one component: median and spread of several repeats after a warm-up.

  tupe bench step --config=tupe_r:tiny           the training step; also: forward, attention
  tupe bench step --shapes=16x128,4x512 --json   batch x length; one JSON object per line
  tupe bench step --against=transformers         also BERT of Hugging Face, same size
  tupe bench reader --data=rows                  your own prepared data (default: random)
  tupe bench checkpoint --config=tupe_r:tiny     the cost of asynchronous checkpoints

`step` is masking, forward, backward and update. `forward` computes hidden states without dropout.
`attention` is the attention of one layer with its projections, forward and backward. FLOPs are
counted from the model; the peak is the fastest large matrix product of the same run.
`reader` reads prepared data into int32 batches, and resumes at several steps.
`checkpoint` times training steps with and without a concurrent save.
"""

import argparse
import json
import re
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.host_memory import keep_freed_memory

if TYPE_CHECKING:
    from tupe_jax.config.schema import Config

RANDOM_ROWS = 40_000
RANDOM_LENGTH = 512

Result = tuple[dict[str, Any], str]
"""A measurement, as JSON and as a line of text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=[*MODEL_COMPONENTS, *OTHERS], help="the component")
    parser.add_argument("--config", default="quickstart", help="the model (default: quickstart)")
    parser.add_argument("--shapes", help="model components: batch x length, as in 16x128,4x512")
    parser.add_argument("--against", choices=["transformers"], help="step: library to compare with")
    parser.add_argument("--data", type=Path, help="reader: a folder written by `tupe prepare`")
    parser.add_argument(
        "--batch-size", type=int, default=256, help="reader: sequences (default: 256)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(arguments: argparse.Namespace) -> None:
    if arguments.against and arguments.what != "step":
        raise UserError(
            f"--against compares training steps; use it with `step`, not with `{arguments.what}`"
        )
    keep_freed_memory()  # as `tupe pretrain` does
    measure = OTHERS.get(arguments.what, _model_component)
    for values, text in measure(arguments):
        print(json.dumps(values) if arguments.json else text, flush=True)


def _config(arguments: argparse.Namespace) -> "Config":
    from tupe_jax.config.loading import load_config
    from tupe_jax.config.recipes import from_config_dict

    return from_config_dict(load_config(arguments.config, arguments.overrides))


def _model_component(arguments: argparse.Namespace) -> Iterator[Result]:
    from tupe_jax.bench import transformers_bert
    from tupe_jax.bench.model_speed import COMPONENTS, with_shape
    from tupe_jax.bench.timing import Speed, measured_matmul_peak, seconds_in_turns

    config, component = _config(arguments), COMPONENTS[arguments.what]
    shapes = _shapes(arguments.shapes) if arguments.shapes else [None]
    peak = measured_matmul_peak(config.model.dtype)
    for shape in shapes:
        shaped = config if shape is None else with_shape(config, *shape)
        works = {arguments.what: component.make(shaped)}
        if arguments.against:
            works["transformers"] = transformers_bert.training_step(shaped)
        rows, length = shaped.train.batch_size, shaped.data.length
        speeds = {
            name: Speed(
                what=name,
                shape=(rows, length),
                tokens_per_second=tuple(rows * length / s for s in seconds),
                # For both the FLOPs of our model: the speed at the same work.
                flops_per_token=component.flops_per_token(shaped),
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
        raise UserError(f"--shapes={text} must be batch x length, as in --shapes=16x128,4x512")
    sizes = [shape.split("x") for shape in text.split(",")]
    return [(int(rows), int(length)) for rows, length in sizes]


def _reader(arguments: argparse.Namespace) -> Iterator[Result]:
    from tupe_jax.bench.reader_speed import measure_reader, write_random_rows

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.data or Path(temporary)
        if not arguments.data:
            write_random_rows(folder, rows=RANDOM_ROWS, length=RANDOM_LENGTH)
        speed = measure_reader(folder, arguments.batch_size)
    resume = ", ".join(
        f"{seconds:.3f} s at step {step:,}" for step, seconds in speed.resume_seconds.items()
    )
    yield (
        {**speed.reading.as_json(), "resume_seconds": speed.resume_seconds},
        f"{speed.reading}; resumes in {resume}",
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
        f"checkpoint: a save blocks {blocked:.3f} s and costs {extra:.3f} s in all (median of "
        f"{len(speed.extra_seconds)}, {min(speed.extra_seconds):.3f} to "
        f"{max(speed.extra_seconds):.3f}); every {speed.every} steps of {speed.step_seconds:.3f} s "
        f"that is {speed.share:.2%}",
    )


MODEL_COMPONENTS = ("step", "forward", "attention")
OTHERS = {"reader": _reader, "checkpoint": _checkpoint}

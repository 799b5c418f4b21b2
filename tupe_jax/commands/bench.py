"""Measure one part on this machine: warm-up, several repeats, median and spread.

  tupe bench step --config=tupe_r:tiny           the training step; also: forward, attention
  tupe bench step --shapes=16x128,4x512 --json   rows x tokens; one JSON object per line
  tupe bench step --against=transformers         Hugging Face's BERT of the same size, in turns
  tupe bench reader --data=rows                  your own prepared rows (else random ones)
  tupe bench checkpoint --config=tupe_r:tiny     what an asynchronous save costs

`step` is masking, forward, backward and update; `forward` the hidden states without dropout;
`attention` one layer's attention with its projections, forward and backward. Their FLOPs are
counted from the model, and the peak is the best of large matrix products in the same run.
`reader` reads prepared rows up to int32 batches in memory, and times resuming at steps far apart.
`checkpoint` times training steps with and without a save beside them.
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
"""What was measured, as JSON and as a line to read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=[*MODEL_PARTS, *OTHERS], help="the part to measure")
    parser.add_argument("--config", default="quickstart", help="the model (default: quickstart)")
    parser.add_argument("--shapes", help="model parts: rows x tokens, as in 16x128,4x512")
    parser.add_argument("--against", choices=["transformers"], help="step: what to compare with")
    parser.add_argument("--data", type=Path, help="reader: a folder written by `tupe prepare`")
    parser.add_argument("--batch-size", type=int, default=256, help="reader: rows (default: 256)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(arguments: argparse.Namespace) -> None:
    if arguments.against and arguments.what != "step":
        raise UserError(f"--against compares training steps; it is no argument of {arguments.what}")
    keep_freed_memory()  # as `tupe pretrain` does
    measure = OTHERS.get(arguments.what, _model_part)
    for values, text in measure(arguments):
        print(json.dumps(values) if arguments.json else text, flush=True)


def _config(arguments: argparse.Namespace) -> "Config":
    from tupe_jax.config.loading import load_config
    from tupe_jax.config.recipes import from_config_dict

    return from_config_dict(load_config(arguments.config, arguments.overrides))


def _model_part(arguments: argparse.Namespace) -> Iterator[Result]:
    from tupe_jax.bench import transformers_bert
    from tupe_jax.bench.matmul_peak import measured_matmul_peak
    from tupe_jax.bench.model_speed import PARTS, with_shape
    from tupe_jax.bench.timing import Speed, seconds_in_turns

    config, part = _config(arguments), PARTS[arguments.what]
    shapes = _shapes(arguments.shapes) if arguments.shapes else [None]
    peak = measured_matmul_peak(config.model.dtype)
    for shape in shapes:
        shaped = config if shape is None else with_shape(config, *shape)
        works = {arguments.what: part.make(shaped)}
        if arguments.against:
            works["transformers"] = transformers_bert.training_step(shaped)
        rows, length = shaped.train.batch_size, shaped.data.length
        speeds = {
            name: Speed(
                what=name,
                shape=(rows, length),
                tokens_per_second=tuple(rows * length / s for s in seconds),
                # Theirs by the count of ours: how fast they get through the same work.
                flops_per_token=part.flops_per_token(shaped),
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
        raise UserError(f"--shapes={text} must be rows x tokens, as in --shapes=16x128,4x512")
    sizes = [shape.split("x") for shape in text.split(",")]
    return [(int(rows), int(length)) for rows, length in sizes]


def _reader(arguments: argparse.Namespace) -> Iterator[Result]:
    from tupe_jax.bench.reader_speed import measure_reader, write_random_sequences

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.data or Path(temporary)
        if not arguments.data:
            write_random_sequences(folder, rows=RANDOM_ROWS, length=RANDOM_LENGTH)
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


MODEL_PARTS = ("step", "forward", "attention")
OTHERS = {"reader": _reader, "checkpoint": _checkpoint}

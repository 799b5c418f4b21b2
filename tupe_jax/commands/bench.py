"""Measure one part on this machine: warm-up, several repeats, median and spread.

  tupe bench reader                      rows of 512 random tokens in a temporary folder
  tupe bench reader --data=rows --json   your own prepared rows; one JSON object per line
  tupe bench checkpoint --config=tupe_r:tiny     what an asynchronous save costs

`reader` reads prepared rows up to int32 batches in memory, and times resuming at steps far apart.
`checkpoint` times training steps with and without a save beside them.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RANDOM_ROWS = 40_000
RANDOM_LENGTH = 512

Result = tuple[dict[str, Any], str]
"""What was measured, as JSON and as a line to read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=list(MEASURES), help="the part to measure")
    parser.add_argument("--data", type=Path, help="reader: a folder written by `tupe prepare`")
    parser.add_argument("--batch-size", type=int, default=256, help="reader: rows (default: 256)")
    parser.add_argument("--config", default="quickstart", help="checkpoint: the model to save")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(arguments: argparse.Namespace) -> None:
    values, text = MEASURES[arguments.what](arguments)
    print(json.dumps({"what": arguments.what, **values}) if arguments.json else text)


def _reader(arguments: argparse.Namespace) -> Result:
    from tupe_jax.data.reader_speed import measure_reader, write_random_rows

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.data or Path(temporary)
        if not arguments.data:
            write_random_rows(folder, rows=RANDOM_ROWS, length=RANDOM_LENGTH)
        speed = measure_reader(folder, arguments.batch_size)
    low, high = min(speed.tokens_per_second), max(speed.tokens_per_second)
    resume = ", ".join(
        f"{seconds:.3f} s at step {step:,}" for step, seconds in speed.resume_seconds.items()
    )
    values = {
        "shape": speed.shape,
        "tokens_per_second": speed.median,
        "lowest": low,
        "highest": high,
        "resume_seconds": speed.resume_seconds,
    }
    return values, (
        f"reader {' x '.join(map(str, speed.shape))}: {speed.median / 1e6:.1f} M tokens/s "
        f"(median of {len(speed.tokens_per_second)}, {low / 1e6:.1f} to {high / 1e6:.1f}); "
        f"resumes in {resume}"
    )


def _checkpoint(arguments: argparse.Namespace) -> Result:
    from tupe_jax.config_files import load_config
    from tupe_jax.recipes import from_config_dict
    from tupe_jax.training.save_speed import measure_saving

    config = from_config_dict(load_config(arguments.config, arguments.overrides))
    with tempfile.TemporaryDirectory() as folder:
        speed = measure_saving(config, Path(folder))
    extra = statistics.median(speed.extra_seconds)
    blocked = statistics.median(speed.blocked_seconds)
    values = {
        "step_seconds": speed.step_seconds,
        "blocked_seconds": blocked,
        "extra_seconds": extra,
        "lowest": min(speed.extra_seconds),
        "highest": max(speed.extra_seconds),
        "every": speed.every,
        "share": speed.share,
    }
    return values, (
        f"checkpoint: a save blocks {blocked:.3f} s and costs {extra:.3f} s in all (median of "
        f"{len(speed.extra_seconds)}, {min(speed.extra_seconds):.3f} to "
        f"{max(speed.extra_seconds):.3f}); every {speed.every} steps of {speed.step_seconds:.3f} s "
        f"that is {speed.share:.2%}"
    )


MEASURES: Mapping[str, Callable[[argparse.Namespace], Result]] = {
    "reader": _reader,
    "checkpoint": _checkpoint,
}

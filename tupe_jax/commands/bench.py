"""Measure one part on this machine: warm-up, several repeats, median and spread.

  tupe bench reader                      rows of 512 random tokens in a temporary folder
  tupe bench reader --data=rows --json   your own prepared rows; one JSON object per line

`reader` reads prepared rows up to int32 batches in memory, and times resuming at steps far apart.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tupe_jax.data.reader_speed import ReaderSpeed, measure_reader, write_random_rows

RANDOM_ROWS = 40_000
RANDOM_LENGTH = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["reader"], help="the part to measure")
    parser.add_argument("--data", type=Path, help="a folder written by `tupe prepare`")
    parser.add_argument("--batch-size", type=int, default=256, help="rows (default: 256)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(arguments: argparse.Namespace) -> None:
    if arguments.data:
        speed = measure_reader(arguments.data, arguments.batch_size)
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_random_rows(Path(folder), rows=RANDOM_ROWS, length=RANDOM_LENGTH)
            speed = measure_reader(Path(folder), arguments.batch_size)
    print(_as_json(speed) if arguments.json else _as_text(speed))


def _as_json(speed: ReaderSpeed) -> str:
    return json.dumps(
        {
            "what": "reader",
            "shape": speed.shape,
            "tokens_per_second": speed.median,
            "lowest": min(speed.tokens_per_second),
            "highest": max(speed.tokens_per_second),
            "resume_seconds": speed.resume_seconds,
        }
    )


def _as_text(speed: ReaderSpeed) -> str:
    low, high = min(speed.tokens_per_second), max(speed.tokens_per_second)
    resume = ", ".join(
        f"{seconds:.3f} s at step {step:,}" for step, seconds in speed.resume_seconds.items()
    )
    return (
        f"reader {' x '.join(map(str, speed.shape))}: {speed.median / 1e6:.1f} M tokens/s "
        f"(median of {len(speed.tokens_per_second)}, {low / 1e6:.1f} to {high / 1e6:.1f}); "
        f"resumes in {resume}"
    )

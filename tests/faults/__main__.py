"""Run a campaign of faults and print a table.

  python -m tests.faults --faults=200 --out=faults.jsonl

Each line of the file is a fault, or the comparison of a whole run with one that was left alone. The
exit code is 1 if any of them has a problem. A campaign of 200 faults takes more than an hour on two
cores.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path as LocalPath

from tests import gcs_emulator
from tests.faults.campaign import Result, campaign
from tests.faults.runs import make_campground
from tupe_jax.utils.text import markdown_table


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=LocalPath, default=LocalPath("faults.jsonl"))
    arguments = parser.parse_args()
    results = []
    with (
        tempfile.TemporaryDirectory() as folder,
        gcs_emulator.running() as emulator,
        arguments.out.open("w", encoding="utf-8") as file,
    ):
        ground = make_campground(LocalPath(folder), emulator)
        for result in campaign(ground, faults=arguments.faults, seed=arguments.seed):
            results.append(result)
            print(json.dumps(asdict(result)), file=file, flush=True)
            state = "PROBLEM" if result.problems else "ok"
            print(f"{result.run} {result.cell}: {result.fault} {result.codes} {state}", flush=True)
    print("\n".join(table(results)))
    return int(any(result.problems for result in results))


def table(results: list[Result]) -> list[str]:
    """One line for each kind of fault."""
    kinds = defaultdict(list)
    for result in results:
        kinds[result.fault].append(result)
    rows = [["fault", "count", "exit codes", "longest, s", "problems"]]
    for kind, same in kinds.items():
        codes = sorted({code for result in same for code in result.codes if code is not None})
        rows.append(
            [
                kind,
                str(len(same)),
                ", ".join(map(str, codes)),
                f"{max(result.seconds for result in same):.0f}",
                str(sum(bool(result.problems) for result in same)),
            ]
        )
    return markdown_table(rows)


if __name__ == "__main__":
    sys.exit(main())

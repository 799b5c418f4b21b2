"""Run a campaign of faults and print a table.

  python -m tests.faults --faults=200 --folder=/tmp/faults

Each line of FOLDER/faults.jsonl is a fault, or the comparison of a whole run with one that was left
alone. The exit code is 1 if any of them has a problem. The same command continues an interrupted
campaign after its last complete run; when it ends, for whatever reason, its processes end with it.
200 faults take more than an hour on two cores.

Much of this is waiting. Campaigns with a folder and a seed of their own may run at the same time:

  python -m tests.faults --faults=100 --seed=0 --folder=/tmp/faults/0 &
  python -m tests.faults --faults=100 --seed=1 --folder=/tmp/faults/1 &
  wait; python -m tests.faults --report --folder=/tmp/faults
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as LocalPath

import jax

from tests import gcs_emulator
from tests.faults.campaign import COMPARISON, Result, campaign
from tests.faults.runs import campground
from tupe_jax.utils.text import markdown_table

RECORDS = "faults.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=LocalPath, required=True)
    parser.add_argument("--report", action="store_true", help="only print the table of FOLDER")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")  # those of the runs are set by `campground`
    if arguments.report:
        files = sorted(arguments.folder.rglob(RECORDS))
        return report([result for file in files for result in read_results(file)])
    arguments.folder.mkdir(parents=True, exist_ok=True)
    records = arguments.folder / RECORDS
    results = read_results(records)
    with (
        gcs_emulator.running() as emulator,
        campground(arguments.folder, emulator) as ground,
        records.open("a", encoding="utf-8") as file,
    ):
        for run in campaign(ground, faults=arguments.faults, seed=arguments.seed, done=results):
            results += run
            # At once: an interrupted run is repeated.
            file.write("".join(f"{json.dumps(asdict(result))}\n" for result in run))
            file.flush()
            for result in run:
                state = "PROBLEM" if result.problems else "ok"
                print(f"{result.run} {result.cell}: {result.fault} {result.codes} {state}")
            sys.stdout.flush()
    return report(results)


def report(results: Sequence[Result]) -> int:
    """Print the table; return the exit code."""
    print("\n".join(table(results)))
    return int(any(result.problems for result in results))


def read_results(records: LocalPath) -> list[Result]:
    """Those of earlier starts of this campaign."""
    if not records.exists():
        return []
    lines = map(json.loads, records.read_text("utf-8").splitlines())
    tuples = ("codes", "problems")
    return [Result(**line | {name: tuple(line[name]) for name in tuples}) for line in lines]


def table(results: Sequence[Result]) -> list[str]:
    """One line for each kind of fault."""
    kinds = defaultdict(list)
    for result in results:
        kinds[result.fault].append(result)
    rows = [["fault", "count", "exit codes", "longest, s", "problems"]]
    for kind, same in sorted(kinds.items(), key=lambda item: item[0] == COMPARISON):
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

"""Run a campaign of faults and print a table.

  python -m tests.faults --faults=200 --folder=/tmp/faults

Each line of FOLDER/faults.jsonl is a fault, or the comparison of a whole run with one that was left
alone. The exit code is 1 if any of them has a problem. The same command continues an interrupted
campaign after its last complete run; when it ends, for whatever reason, its processes end with it.
200 faults take more than an hour on two cores.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as LocalPath

from tests import gcs_emulator
from tests.faults.campaign import COMPARISON, Result, campaign
from tests.faults.runs import campground
from tupe_jax.utils.text import markdown_table


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=LocalPath, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    records = arguments.folder / "faults.jsonl"
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

"""Check a run on a pod before you allocate it: storage, data, memory, reader, checkpoints, cost.

  tupe rehearse --config=tupe_r:modern --target=v5e:16x16 --workdir=gs://tupe-runs/tupe_r

It measures the storage with temporary files, compares the prepared data and an earlier run in the
work directory with the config, compiles the step with the target's own compiler, and reads batches
as one host would. Run it near the storage, in the pod's region: latency and bandwidth are measured
from this machine. Hours are estimated as in `tupe compile`; dollars do not include waiting and
restarts.

Exit code 0 means go, possibly with warnings; 1 means no-go.
"""

import argparse
import json
import textwrap
from typing import TYPE_CHECKING

from tupe_jax.commands.given_target import add_target, given_target
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import storage_path

if TYPE_CHECKING:
    from tupe_jax.rehearsal.checks import Finding, Plan

NO_GO_EXIT_CODE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--workdir", required=True, type=storage_path, help="folder of the run, or gs://..."
    )
    parser.add_argument(
        "--price", type=float, metavar="DOLLARS", help="per chip and hour (default: a list price)"
    )


def run(arguments: argparse.Namespace) -> int:
    config, target = given_target(arguments)
    from dataclasses import asdict

    from tupe_jax.rehearsal.checks import CHECKS, Plan, rehearse
    from tupe_jax.rehearsal.prices import Price

    if arguments.price is not None and not arguments.price >= 0:
        raise UserError(f"--price={arguments.price} must be 0 or more dollars")
    plan = Plan(
        config=config,
        target=target,
        workdir=arguments.workdir,
        peak_share=arguments.peak_share,
        price=None if arguments.price is None else Price(arguments.price),
    )
    findings = []
    if not arguments.json:
        print(_header(arguments.config, plan))
    for finding in rehearse(plan):
        findings.append(finding)
        if not arguments.json:
            print(_lines(finding), flush=True)
    verdicts = [finding.verdict for finding in findings]
    go = "no-go" not in verdicts
    if arguments.json:
        print(json.dumps({"go": go, "findings": [asdict(finding) for finding in findings]}))
    else:
        counts = f"{verdicts.count('no-go')} no-go, {verdicts.count('warning')} warnings"
        left_out = set(CHECKS) - {finding.check for finding in findings}
        if left_out:
            names = ", ".join(check for check in CHECKS if check in left_out)
            print(f"  not checked, because another check failed: {names}")
        print(f"\n{'go' if go else 'no-go'} ({counts})")
    return 0 if go else NO_GO_EXIT_CODE


def _header(config: str, plan: "Plan") -> str:
    from tupe_jax.utils.text import quantity

    train, length = plan.config.train, plan.config.data.length
    tokens = f"{quantity(plan.batch_tokens)} tokens"
    return (
        f"{config} on {plan.target.name}, work directory {plan.workdir}\n"
        f"{train.steps:,} steps of {train.batch_size:,} sequences of {length:,} tokens: "
        f"{tokens} per step, {quantity(train.steps * plan.batch_tokens)} in all\n"
    )


def _lines(finding: "Finding") -> str:
    head = f"  {finding.verdict:<8} {finding.check:<12} "
    return textwrap.fill(
        finding.text,
        width=100,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )

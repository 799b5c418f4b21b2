"""Look whether all that is needed is here: versions, devices, memory, extras.

  tupe doctor
  JAX_PLATFORMS=cpu tupe doctor     as if there were no accelerator

Exit code 0 if everything required is there and JAX finds a device, else 1; each line that begins
with ! says what to do.
"""

import argparse

PROBLEM_EXIT_CODE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", type=float, default=60.0, help="seconds to look for devices (default: 60)"
    )


def run(arguments: argparse.Namespace) -> int:
    from tupe_jax.commands.doctor_checks import findings

    healthy = True
    for finding in findings(arguments.wait):
        healthy &= finding.healthy
        print(f"{' ' if finding.healthy else '!'} {finding.what:<9} {finding.text}", flush=True)
    return 0 if healthy else PROBLEM_EXIT_CODE

"""Compile the train step for a TPU or GPU that need not be attached, and report memory and speed.

  tupe compile --config=tupe_r --target=v5e:16x16
  tupe compile --config=tupe_large --target=h100:8x8 --batch-per-device=32 --config.mesh.fsdp=8
  tupe compile --config=tupe_r --target=v5e:1x1 --fit

Targets are TPU slices (v4:2x2x2, v5e:16x16, v5p:4x4x4, v6e:16x16, tpu7x:2x2x1) or hosts with GPUs
(a100:8, h100:2x8: two hosts of eight, h200:8). The extras `tpu` and `cuda` install their compilers.
With --config.mesh.slice=2 the target has two such slices.

--fit finds the cheapest model.remat under which the batch fits, then the largest batch; each step
of the search is a compilation. If a config does not fit, the search also runs without --fit, and
the exit code is 1.
"""

import argparse
import logging

from tupe_jax.commands.given_target import add_target, given_target
from tupe_jax.utils.errors import UserError

logger = logging.getLogger(__name__)

DOES_NOT_FIT_EXIT_CODE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--batch-per-device", type=int, help="sequences; overrides train.batch_size"
    )
    parser.add_argument(
        "--fit", action="store_true", help="search for a remat policy and a batch that fit"
    )


def run(arguments: argparse.Namespace) -> int:
    config, target = given_target(arguments)
    from tupe_jax.aot.compile import compile_for, fit, mesh_for, with_batch
    from tupe_jax.aot.report import as_json, as_text

    mesh = mesh_for(config, target)
    if arguments.batch_per_device is not None:
        if arguments.batch_per_device < 1:
            raise UserError(f"--batch-per-device={arguments.batch_per_device} must be at least 1")
        config = with_batch(config, arguments.batch_per_device, mesh)

    fitting = None
    if arguments.fit:
        requested = fitting = fit(config, target, mesh)
    else:
        requested = compile_for(config, target, mesh)
        if not requested.fits:
            logger.info("%s", requested)
            fitting = fit(config, target, mesh, known=requested)
    render = as_json if arguments.json else as_text
    print(render(requested, fitting, arguments.peak_share))
    return 0 if requested.fits else DOES_NOT_FIT_EXIT_CODE

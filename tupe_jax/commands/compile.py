"""Compile the train step for hardware that is not here, and say whether and how well it would run.

  tupe compile --config=tupe_r --target=v5e:16x16
  tupe compile --config=tupe_large --target=h100:8x8 --batch-per-device=32 --config.mesh.fsdp=8
  tupe compile --config=tupe_r --target=v5e:1x1 --fit

Targets are slices of TPUs (v4:2x2x2, v5e:16x16, v5p:4x4x4, v6e:16x16, tpu7x:2x2x1) or hosts of GPUs
(a100:8, h100:2x8: two hosts of eight, h200:8). Their own compilers are asked; they come with the
extras `tpu` and `cuda`. With --config.mesh.slice=2 there are two such slices.

--fit looks for the cheapest model.remat under which the batch fits, then for the largest batch;
each step of the search is a compilation. If a config does not fit, that is done unasked, and the
exit code is 1.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from tupe_jax.aot.step_time import PEAK_SHARE

if TYPE_CHECKING:
    from tupe_jax.aot.compile import Answer

DOES_NOT_FIT_EXIT_CODE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", required=True, help="file or name, see `tupe pretrain --help`")
    parser.add_argument("--target", required=True, help="for example v5e:16x16 or h100:2x8")
    parser.add_argument(
        "--batch-per-device", type=int, help="rows, instead of the config's train.batch_size"
    )
    parser.add_argument("--fit", action="store_true", help="find what fits")
    parser.add_argument(
        "--peak-share",
        type=float,
        default=PEAK_SHARE,
        help=f"share of the peak FLOP/s to assume for the estimate (default: {PEAK_SHARE})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    # Only compilers are asked: no accelerator of this machine is touched, and they stay quiet.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tupe_jax.aot.compile import ask, fit, mesh_for, with_rows
    from tupe_jax.aot.report import as_json, as_text, one_line
    from tupe_jax.aot.targets import parse_target
    from tupe_jax.config.loading import from_config_dict, load_config
    from tupe_jax.utils.errors import UserError

    if not 0 < arguments.peak_share <= 1:
        raise UserError(f"--peak-share={arguments.peak_share} must be above 0 and at most 1")
    config = from_config_dict(load_config(arguments.config, arguments.overrides))
    target = parse_target(arguments.target)
    mesh = mesh_for(config, target)
    if arguments.batch_per_device is not None:
        if arguments.batch_per_device < 1:
            raise UserError(f"--batch-per-device={arguments.batch_per_device} must be at least 1")
        config = with_rows(config, arguments.batch_per_device, mesh)

    def say(answer: "Answer") -> None:
        print(one_line(answer), file=sys.stderr, flush=True)

    fitting = None
    if arguments.fit:
        asked = fitting = fit(config, target, mesh, say)
    else:
        asked = ask(config, target, mesh)
        if not asked.fits:
            say(asked)
            fitting = fit(config, target, mesh, say, known=asked)
    render = as_json if arguments.json else as_text
    print(render(asked, fitting, arguments.peak_share))
    return 0 if asked.fits else DOES_NOT_FIT_EXIT_CODE

"""The flags that `tupe compile` and `tupe rehearse` share: the config and the target."""

import argparse
import os
from typing import TYPE_CHECKING

from tupe_jax.aot.step_time import PEAK_SHARE
from tupe_jax.utils.errors import UserError

if TYPE_CHECKING:
    from tupe_jax.aot.targets import Target
    from tupe_jax.config.schema import Config


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", required=True, help="file or name, see `tupe pretrain --help`")
    parser.add_argument("--target", required=True, help="for example v5e:16x16 or h100:2x8")
    parser.add_argument(
        "--peak-share",
        type=float,
        default=PEAK_SHARE,
        help=f"assumed share of the peak FLOP/s (default: {PEAK_SHARE})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def given_target(arguments: argparse.Namespace) -> tuple["Config", "Target"]:
    """Return the config and the target. Call this before anything imports JAX."""
    # Only compilers run: do not use the accelerators of this machine, and silence the compilers.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tupe_jax.aot.targets import parse_target
    from tupe_jax.config.loading import from_config_dict, load_config

    if not 0 < arguments.peak_share <= 1:
        raise UserError(f"--peak-share={arguments.peak_share} must be above 0 and at most 1")
    config = from_config_dict(load_config(arguments.config, arguments.overrides))
    return config, parse_target(arguments.target)

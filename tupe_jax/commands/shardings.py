"""Print how the parameters of a config are divided among devices, and the bytes of each.

  tupe shardings --config=tupe_r --devices=8 --config.mesh.fsdp=4 --config.mesh.tensor=2
  tupe shardings --config=tupe_large --devices=256 --config.mesh.slice=2 --config.mesh.fsdp=16

None of the devices needs to be there. Columns: the logical name and size of each axis, and the axes
of the mesh it is divided by, from the table in tupe_jax/distributed/sharding_rules.py.
"""

import argparse
import json

from tupe_jax.utils.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", required=True, help="a config, such as tupe_r:tiny")
    parser.add_argument(
        "--devices", type=int, help="how many (default: the product of the sizes in config.mesh)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.aot.sharding_report import as_json, as_text, lay_out
    from tupe_jax.config.loading import from_config_dict, load_config

    if arguments.devices is not None and arguments.devices < 1:
        raise UserError(f"--devices={arguments.devices} must be at least 1")
    config = from_config_dict(load_config(arguments.config, arguments.overrides))
    shardings = lay_out(config, arguments.devices)
    print(json.dumps(as_json(shardings)) if arguments.json else as_text(shardings))

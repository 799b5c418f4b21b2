"""Print how the parameters of a config are divided among devices, and the bytes of each.

  tupe shardings --config=tupe_r --devices=8 --config.mesh.fsdp=4 --config.mesh.tensor=2
  tupe shardings --config=tupe_large --devices=256 --config.mesh.slice=2 --config.mesh.fsdp=16

None of the devices needs to be there. Columns: the logical name and size of each axis, and the axes
of the mesh it is divided by, from the table in tupe_jax/logical_axes.py.
"""

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", required=True, help="a config, such as tupe_r:tiny")
    parser.add_argument(
        "--devices", type=int, help="how many (default: the product of the sizes in config.mesh)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.config_files import load_config
    from tupe_jax.recipes import from_config_dict
    from tupe_jax.training.shardings import as_json, as_text, lay_out

    config = from_config_dict(load_config(arguments.config, arguments.overrides))
    shardings = lay_out(config, arguments.devices)
    print(json.dumps(as_json(shardings)) if arguments.json else as_text(shardings))

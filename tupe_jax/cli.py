"""`tupe <command>`: one table of commands, each a module in `tupe_jax.commands`.

A command's module is imported only when it runs, so that `tupe --help` needs no JAX.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tupe_jax.errors import USER_ERROR_EXIT_CODE, UserError


@dataclass(frozen=True)
class Command:
    """A line of `tupe --help`.

    Its module has `add_arguments(parser)` and `run(arguments)`, which may return an exit code.
    """

    name: str
    summary: str

    @property
    def module(self) -> str:
        return f"tupe_jax.commands.{self.name.replace('-', '_')}"


COMMANDS = (
    Command("pretrain", "train a model on text, or go on where a run stopped"),
    Command("finetune", "fine-tune a model on a task, one of GLUE's or your own"),
    Command("glue", "fine-tune on all of GLUE by the paper's protocol, and print its table"),
    Command("analyze", "measure what a trained model knows of positions and word order"),
    Command("shardings", "print how a config is divided among devices"),
    Command("compile", "ask the compiler of a TPU or GPU whether and how well a config would run"),
    Command("import-fairseq", "turn a released TUPE checkpoint into a model folder"),
    Command("import-hf", "turn a public encoder in Hugging Face's layout into a model folder"),
    Command("vocab", "train a vocabulary on a data task"),
    Command("prepare", "run a data task once and write its token rows"),
    Command("bench", "measure one part on this machine"),
)


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS]
    return f"""usage: tupe <command> [arguments]

commands:
{chr(10).join(lines)}

`tupe <command> --help` explains one; TUPE_TRACEBACK=1 shows where an error arose."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0
    commands = {command.name: command for command in COMMANDS}
    command = commands.get(argv[0])
    if command is None:
        print(f"tupe: no command {argv[0]!r}; `tupe --help` lists them", file=sys.stderr)
        return USER_ERROR_EXIT_CODE
    module = importlib.import_module(command.module)
    parser = argparse.ArgumentParser(
        prog=f"tupe {command.name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    # Settings of a config file are no arguments of the command: argparse would not know them.
    overrides = [word for word in argv[1:] if word.startswith("--config.")]
    arguments = parser.parse_args([word for word in argv[1:] if word not in overrides])
    if overrides and not hasattr(arguments, "config"):
        parser.error(f"{overrides[0]}: this command takes no config")
    arguments.overrides = overrides
    try:
        exit_code: int | None = module.run(arguments)
    except UserError as error:
        if os.environ.get("TUPE_TRACEBACK"):
            raise
        print(f"tupe {command.name}: {error}", file=sys.stderr)
        return error.exit_code
    return exit_code or 0

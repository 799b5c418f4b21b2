"""`tupe <command>`: one table of commands, each a module in `tupe_jax.commands`.

A command's module is imported only when it runs, so that `tupe --help` needs no JAX.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from tupe_jax import __version__
from tupe_jax.config.validation import did_you_mean
from tupe_jax.utils.accelerators import skip_absent_tpu
from tupe_jax.utils.errors import USER_ERROR_EXIT_CODE, UserError
from tupe_jax.utils.logging import configure_logging


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


PURPOSES: Mapping[str, tuple[Command, ...]] = {
    "train": (
        Command("pretrain", "train a model on text, or go on where a run stopped"),
        Command("finetune", "fine-tune a model on a task, one of GLUE's or your own"),
        Command("glue", "fine-tune on all of GLUE by the paper's protocol, and print its table"),
        Command("config", "print every setting of a config, or how two configs differ"),
    ),
    "use a model": (
        Command("fill-mask", "put words in place of [MASK]"),
        Command("encode", "turn texts into vectors"),
        Command("score", "say how likely a model finds a text"),
        Command("predict", "ask a fine-tuned model about texts"),
    ),
    "look into models": (
        Command("analyze", "measure what a trained model knows of positions and word order"),
        Command("ablate", "compare positional encodings: train, tune and measure variants x seeds"),
    ),
    "plan a large run": (
        Command("shardings", "print how a config is divided among devices"),
        Command(
            "compile", "ask the compiler of a TPU or GPU whether and how well a config would run"
        ),
    ),
    "take a model elsewhere": (
        Command(
            "export",
            "write a model as safetensors, in the released TUPE format, or for transformers",
        ),
        Command("import-fairseq", "turn a released TUPE checkpoint into a model folder"),
        Command("import-hf", "turn a public encoder in Hugging Face's layout into a model folder"),
    ),
    "prepare data": (
        Command("vocab", "train a vocabulary on a data task"),
        Command("prepare", "run a data task once and write its token rows"),
    ),
    "this machine": (
        Command("doctor", "look whether all that is needed is here"),
        Command("bench", "measure one part on this machine"),
        Command("completion", "print what makes a shell complete these commands"),
    ),
}
COMMANDS = tuple(command for commands in PURPOSES.values() for command in commands)


class Parser(argparse.ArgumentParser):
    """One line for a wrong argument, as for any other mistake."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR_EXIT_CODE, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def parser_of(command: Command) -> Parser:
    """The arguments of a command."""
    module = importlib.import_module(command.module)
    parser = Parser(
        prog=f"tupe {command.name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


def parse(command: Command, words: Sequence[str]) -> argparse.Namespace:
    """What was asked of a command; `overrides` are settings of its config file."""
    parser = parser_of(command)
    # argparse would not know them.
    overrides = [word for word in words if word.startswith("--config.")]
    for override in overrides:
        if "=" not in override:
            parser.error(f"{override}: write {override}=VALUE, with an equals sign")
    known = [name for action in parser._actions for name in action.option_strings]
    others = _as_spelled(known, [word for word in words if word not in overrides])
    # Intermixed: options may stand between a model and its texts.
    arguments, unknown = parser.parse_known_intermixed_args(others)
    if unknown:
        # Without the values that may have followed them.
        options = [word for word in unknown if word.startswith("-")] or unknown
        near = did_you_mean(options[0].partition("=")[0], known)
        parser.error(f"unrecognized arguments: {' '.join(options)}{near}")
    if overrides and not hasattr(arguments, "config"):
        parser.error(f"{overrides[0]}: this command takes no config")
    arguments.overrides = overrides
    return arguments


def _as_spelled(known: Sequence[str], words: Sequence[str]) -> list[str]:
    """The words, with options as they are known: --data-dir is --data_dir."""
    spelling = {name.replace("_", "-"): name for name in known}
    end = words.index("--") if "--" in words else len(words)
    pairs = [word.partition("=") for word in words[:end]]
    spelled = [
        f"{spelling.get(name.replace('_', '-'), name)}{equals}{value}"
        for name, equals, value in pairs
    ]
    return [*spelled, *words[end:]]


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    lines = []
    for purpose, commands in PURPOSES.items():
        lines += ["", f"{purpose}:"]
        lines += [f"  {command.name:<{width}}  {command.summary}" for command in commands]
    return f"""usage: tupe <command> [arguments]
{chr(10).join(lines)}

`tupe <command> --help` explains one; TUPE_TRACEBACK=1 shows where an error arose."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if argv[0] == "--version":
        print(f"tupe_jax {__version__}")
        return 0
    commands = {command.name: command for command in COMMANDS}
    command = commands.get(argv[0])
    if command is None:
        near = did_you_mean(argv[0], commands)
        print(f"tupe: no command {argv[0]!r}{near}; `tupe --help` lists them", file=sys.stderr)
        return USER_ERROR_EXIT_CODE
    configure_logging()
    skip_absent_tpu()  # before a command imports JAX
    arguments = parse(command, argv[1:])
    try:
        exit_code: int | None = importlib.import_module(command.module).run(arguments)
        sys.stdout.flush()  # here, where a reader that has gone away is no error yet
    except BaseException as error:
        told = None if os.environ.get("TUPE_TRACEBACK") else _told(error)
        if told is None:
            raise
        message, code = told
        print(f"tupe {command.name}: {message}", file=sys.stderr)
        return code
    return exit_code or 0


def _told(error: BaseException) -> tuple[str, int] | None:
    """The line for an error that a user can cause, and its exit code; None for all others."""
    match error:
        case UserError():
            return str(error), error.exit_code
        case KeyboardInterrupt():
            return "interrupted", 128 + signal.SIGINT
        case BrokenPipeError():
            # Else Python complains once more, when it flushes at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return "nobody reads on", 128 + signal.SIGPIPE
        case (
            FileExistsError()
            | FileNotFoundError()
            | IsADirectoryError()
            | NotADirectoryError()
            | PermissionError()
        ) if error.filename is not None:
            return f"{error.filename}: {error.strerror}", USER_ERROR_EXIT_CODE
    return None

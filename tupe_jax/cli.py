"""`tupe <command>`: the table of commands. Each is a module of `tupe_jax.commands`.

A command's module is imported only when it runs, so that `tupe --help` does not import JAX.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, TextIO

from tupe_jax import __version__
from tupe_jax.config.validation import did_you_mean
from tupe_jax.utils.accelerators import skip_absent_tpu
from tupe_jax.utils.errors import RETRY_EXIT_CODE, USER_ERROR_EXIT_CODE, UserError, is_full_disk
from tupe_jax.utils.logging import configure_logging, exit_at_the_latest

EXIT_SECONDS = 10.0
"""How long the process may take to end after its command."""


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


COMMAND_GROUPS: Mapping[str, tuple[Command, ...]] = {
    "train": (
        Command("pretrain", "pre-train a model on text, or resume a run"),
        Command("finetune", "fine-tune a model on a GLUE task or on your own file"),
        Command("glue", "fine-tune on all of GLUE with the paper's protocol, and print a table"),
        Command("config", "print every setting of a config, or how two configs differ"),
    ),
    "use a model": (
        Command("fill-mask", "predict the tokens at [MASK]"),
        Command("encode", "compute a vector for each text"),
        Command("score", "compute the pseudo-log-likelihood of each text"),
        Command("predict", "classify or score texts with a fine-tuned model"),
    ),
    "analyze models": (
        Command("analyze", "measure how a model uses positions and word order"),
        Command("ablate", "run a study: compare variants over several seeds"),
    ),
    "plan a large run": (
        Command("shardings", "print how a config is sharded across devices"),
        Command("compile", "compile a config for a TPU or GPU, and report memory and speed"),
        Command("rehearse", "check storage, data, memory, speed and cost before a run on a pod"),
        Command("check-progress", "for launch scripts: fail if restarts make no progress"),
    ),
    "convert models": (
        Command(
            "export",
            "export a model: safetensors, the released TUPE format, or transformers",
        ),
        Command("import-fairseq", "convert a released TUPE checkpoint to a model folder"),
        Command("import-hf", "convert a Hugging Face encoder to a model folder"),
    ),
    "prepare data": (
        Command("vocab", "train a tokenizer on a data task or on text files"),
        Command("prepare", "tokenize and pack a data task into shards, once"),
        Command("data", "describe a prepared folder, and warn of common mistakes"),
    ),
    "this machine": (
        Command("doctor", "check this installation and its devices"),
        Command("bench", "measure the speed of one component"),
        Command("completion", "print a completion script for a shell"),
    ),
}
COMMANDS = tuple(command for commands in COMMAND_GROUPS.values() for command in commands)


class Parser(argparse.ArgumentParser):
    """Prints one line for a wrong argument, as for any other user error."""

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
    """The arguments of a command; `overrides` are the `--config.key=value` among them."""
    parser = parser_of(command)
    # argparse does not know the overrides.
    overrides = [word for word in words if word.startswith("--config.")]
    for override in overrides:
        if "=" not in override:
            parser.error(f"{override}: write {override}=VALUE, with an equals sign")
    known = [name for action in parser._actions for name in action.option_strings]
    others = _normalize_option_names(known, [word for word in words if word not in overrides])
    # Intermixed: options may come between a model and its texts.
    arguments, unknown = parser.parse_known_intermixed_args(others)
    if getattr(arguments, "runner", None) is not None:
        arguments.runner_options, unknown = unknown, []  # Beam checks them
    if unknown:
        # Name only the options: the words after them may be their values.
        options = [word for word in unknown if word.startswith("-")] or unknown
        near = did_you_mean(options[0].partition("=")[0], known)
        parser.error(f"unrecognized arguments: {' '.join(options)}{near}")
    if overrides and not hasattr(arguments, "config"):
        parser.error(f"{overrides[0]}: this command takes no config")
    arguments.overrides = overrides
    return arguments


def _normalize_option_names(known: Sequence[str], words: Sequence[str]) -> list[str]:
    """The words, with options as the command spells them: --data-dir becomes --data_dir."""
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
    for group, commands in COMMAND_GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {command.name:<{width}}  {command.summary}" for command in commands]
    return f"""usage: tupe <command> [arguments]
{chr(10).join(lines)}

`tupe <command> --help` shows the arguments of a command. TUPE_TRACEBACK=1 shows tracebacks."""


def entry_point() -> NoReturn:
    """The program `tupe`: run a command, and end the process.

    Python waits for threads when it exits. Orbax leaves one that never ends if a write fails.
    """
    exit_code = 1
    try:
        exit_code = main(before_error=lambda code: exit_at_the_latest(code, EXIT_SECONDS))
    finally:
        exit_at_the_latest(exit_code, EXIT_SECONDS)
    sys.exit(exit_code)


def main(
    argv: Sequence[str] | None = None, before_error: Callable[[int], None] = lambda exit_code: None
) -> int:
    """Run one command and return the exit code.

    `before_error` is called with the exit code before an error is printed, which takes forever if
    nobody reads standard error.
    """
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
    from tupe_jax.utils.object_storage import storage_errors  # `tupe --help` does not need it

    try:
        with storage_errors():
            exit_code: int | None = importlib.import_module(command.module).run(arguments)
        sys.stdout.flush()  # here, where a broken pipe can still be handled
    except BaseException as error:
        line = None if os.environ.get("TUPE_TRACEBACK") else _error_line(error)
        if line is None:
            raise
        message, code = line
        before_error(code)
        with suppress(OSError):  # the log may be on the full disk
            print(f"tupe {command.name}: {message}", file=sys.stderr)
        return code
    finally:
        for stream in (sys.stdout, sys.stderr):
            _drop_what_cannot_be_written(stream)
    return exit_code or 0


def _drop_what_cannot_be_written(stream: TextIO) -> None:
    """Redirect a stream that cannot be flushed to the null device.

    Otherwise Python tries again at exit, fails, and replaces the exit code by 120.
    """
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _error_line(error: BaseException) -> tuple[str, int] | None:
    """The message and exit code of an error that a user can cause; None for all others."""
    match error:
        case UserError():
            return str(error), error.exit_code
        case KeyboardInterrupt():
            return "interrupted", 128 + signal.SIGINT
        case BrokenPipeError():
            return "broken pipe: the reader closed standard output", 128 + signal.SIGPIPE
        case OSError() if is_full_disk(error):
            return f"cannot write: {error.strerror}; free disk space", RETRY_EXIT_CODE
        case (
            FileExistsError()
            | FileNotFoundError()
            | IsADirectoryError()
            | NotADirectoryError()
            | PermissionError()
        ) if error.filename is not None:
            return f"{error.filename}: {error.strerror}", USER_ERROR_EXIT_CODE
    return None

"""The texts of a command: from arguments, a file, or standard input."""

import argparse
import io
import sys
from collections.abc import Iterable

from tupe_jax.utils.errors import UserError, reason
from tupe_jax.utils.files import local_file
from tupe_jax.utils.paths import Path, storage_path


def add_model_and_texts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="a work directory, a checkpoint or a model folder")
    parser.add_argument("text", nargs="*", default=[], help="default: the lines of standard input")
    parser.add_argument("--file", type=storage_path, help="a file with one text per line")
    parser.add_argument(
        "--vocabulary", type=storage_path, help="tokenizer of a model folder without one"
    )


def given_texts(arguments: argparse.Namespace) -> list[str]:
    """The texts; to be read before a model is loaded."""
    if arguments.text and arguments.file:
        raise UserError("give texts as arguments or as --file, not both")
    if arguments.text:
        return list(arguments.text)
    if arguments.file is None:
        if sys.stdin.isatty():
            raise UserError("no texts: give them as arguments, as --file, or on standard input")
        if isinstance(sys.stdin, io.TextIOWrapper):  # in any locale
            sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
        return _lines(sys.stdin, "standard input")
    return lines_of(arguments.file)


def lines_of(file: Path) -> list[str]:
    """The texts of a file, one per line."""
    try:
        with local_file(file) as local, local.open(encoding="utf-8-sig") as lines:
            return _lines(lines, str(file))
    except OSError as error:
        raise UserError(f"cannot read {file}: {reason(error)}") from None


def _lines(lines: Iterable[str], where: str) -> list[str]:
    try:
        texts = [line.rstrip("\r\n") for line in lines]
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 text: {error.reason}") from None
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise UserError(f"{where}:{number}: an empty line; each line is one text")
    if not texts:
        raise UserError(f"{where} has no texts")
    return texts

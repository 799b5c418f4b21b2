"""The lines of a small text file, plain or gzip, with their numbers for error messages."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from tupe_jax.utils.errors import UserError


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines that are not empty, without the line's end.

    Lines end at a line feed only: sentences may hold other characters that Unicode takes for line
    ends.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")
                if text:
                    yield number, text
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: not UTF-8 ({error.reason})") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: broken gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None

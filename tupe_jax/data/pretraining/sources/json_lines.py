"""JSON Lines: an object per line, whose field is the text of a document."""

import json
import math
from itertools import islice

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.sources.base import lines_of_record
from tupe_jax.data.pretraining.sources.files import Block, Flaw
from tupe_jax.data.pretraining.sources.line_files import (
    BLOCK_BYTES,
    LineFiles,
    Lines,
    uncompressed_bytes,
    utf8,
)

DEFAULT_FIELD = "text"
# A file of one JSON array, a common mistake, must not be read into memory as one line.
LONGEST_LINE = 1 << 26
_BLOCKS_TO_MEASURE = 16
_BYTE_ORDER_MARK = "\ufeff"
_ADVICE = "correct the line"


class JsonLines(LineFiles):
    """A block holds the records whose lines begin in it."""

    longest_line = LONGEST_LINE

    def __init__(self, argument: str, on_error: OnError = "stop", block_bytes: int = BLOCK_BYTES):
        pattern, _, field = argument.rpartition("#") if "#" in argument else (argument, "", "")
        self._field = field or DEFAULT_FIELD
        super().__init__("jsonl", argument, pattern, block_bytes, on_error)
        # Other fields may be larger than the text. This also finds a wrong field before any work.
        read_bytes, text_bytes = self._first_text()
        self.text_bytes = max(self.text_bytes * text_bytes // read_bytes, 1)

    def parse(self, lines: Lines, begin: int, end: int) -> Block:
        documents: list[str] = []
        flaws: list[Flaw] = []
        for offset, line in lines:
            if offset >= end:
                break
            if not line.strip():
                continue
            text = self._text(lines, offset, line)
            if isinstance(text, Flaw):
                flaws.append(text)
            elif document := lines_of_record(text):
                documents.append(document)
        if lines.damage and begin <= lines.offset < end:
            flaws.append(lines.damage)
        return Block(documents, flaws)

    def _first_text(self) -> tuple[int, int]:
        """Return the size of the first block with text, and that of its text.

        If the first blocks have none, as with broken records, all is taken for text.
        """
        sizes = (
            (file.name, number, min(size - number * self._block_bytes, self._block_bytes))
            for file in self._files
            for size in [uncompressed_bytes(file)]
            for number in range(math.ceil(size / self._block_bytes))
        )
        for name, number, size in islice(sizes, _BLOCKS_TO_MEASURE):
            if block := self.read_block(name, number):
                self.stop_at(block.flaws)
                if block.documents:
                    return size, sum(len(document.encode()) + 1 for document in block.documents)
        return 1, 1

    def _text(self, lines: Lines, offset: int, line: bytes) -> str | Flaw:
        def flaw(problem: str, advice: str = _ADVICE) -> Flaw:
            return Flaw(lines.file, offset, problem, advice)

        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            advice = "write one object per line"
            return flaw(f"a line of more than {LONGEST_LINE >> 20} MiB", advice)
        decoded = utf8(lines, offset, line)
        if isinstance(decoded, Flaw):
            return decoded
        try:
            record = json.loads(decoded if offset else decoded.removeprefix(_BYTE_ORDER_MARK))
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            return flaw(f"not JSON ({reason})")
        if not isinstance(record, dict):
            return flaw(f"{_kind(record)}, not an object", "write one object per line")
        if self._field not in record:
            fields = ", ".join(map(repr, record)) or "none"
            return flaw(
                f"no field {self._field!r}; its fields are {fields}",
                "name the field of the text, as in jsonl:GLOB#FIELD",
            )
        text = record[self._field]
        if not isinstance(text, str):
            return flaw(f"field {self._field!r} is {_kind(text)}, not a string")
        try:
            text.encode()
        except UnicodeEncodeError:
            return flaw(f"field {self._field!r} has half of a surrogate pair, which is not text")
        return text


def _kind(value: object) -> str:
    """Return what a value is called in JSON."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a truth value"}
    return "null" if value is None else kinds.get(type(value), "a number")

"""Text files: a sentence or paragraph per line, a blank line between documents."""

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.sources.files import Block, Flaw
from tupe_jax.data.pretraining.sources.line_files import BLOCK_BYTES, LineFiles, Lines, utf8


class TextFiles(LineFiles):
    """A block holds the documents whose preceding blank line begins in it, whatever their length.

    Empty lines around documents and white space around lines are dropped.
    """

    def __init__(self, pattern: str, on_error: OnError = "stop", block_bytes: int = BLOCK_BYTES):
        super().__init__("text", pattern, pattern, block_bytes, on_error)

    def parse(self, lines: Lines, begin: int, end: int) -> Block:
        documents: list[str] = []
        flaws: list[Flaw] = []
        document: list[str] = []
        owned = begin == 0  # whether the current document began in this block
        for offset, raw in lines:
            line = raw.strip()
            if not line:
                if owned and document:
                    documents.append("\n".join(document))
                document = []
                owned = offset < end
            elif owned:
                text = utf8(lines, offset, line)
                if isinstance(text, Flaw):
                    flaws.append(text)
                else:
                    document.append(text)
            if offset >= end and not owned:
                break
        if owned and document:
            documents.append("\n".join(document))
        if lines.damage and begin <= lines.offset < end:
            flaws.append(lines.damage)
        return Block(documents, flaws)

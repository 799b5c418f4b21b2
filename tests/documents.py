"""What the pages for users contain: shell lines, commands in sentences, and Python blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMENT = re.compile(r"\s+#\s.*$")


def pages(*patterns):
    """Names of pages, such as docs/data.md."""
    found = [page for pattern in patterns for page in sorted(ROOT.glob(pattern))]
    return [page.relative_to(ROOT).as_posix() for page in found]


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text, *languages):
    """The content of the code blocks in these languages."""
    return re.findall(rf"```(?:{'|'.join(languages)})\n(.*?)```", text, re.DOTALL)


def one_line(text):
    """With single spaces, so that wrapping and alignment do not matter."""
    return " ".join(text.split())


def shell_lines(text):
    """Every line of the shell blocks: continued lines joined, comments and here-documents cut."""
    for block in blocks(text, "bash", "sh"):
        without_content = re.sub(r"(<<'(\w+)')\n.*?\n\2\n", r"\1\n", block, flags=re.DOTALL)
        for line in without_content.replace("\\\n", " ").splitlines():
            if line.strip():
                yield one_line(COMMENT.sub("", line))


def commands_in_sentences(text):
    """Commands of `tupe` with arguments, in backquotes."""
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for found in re.findall(r"`(tupe\s+[a-z-]+\s+(?!--help)[^`]+)`", outside):
        yield one_line(found)

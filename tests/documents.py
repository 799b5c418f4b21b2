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
    """The content of the code blocks in these languages; "" is a block without one."""
    every = re.findall(r"^[ \t]*```(.*?)\n(.*?)^[ \t]*```$", text, re.DOTALL | re.MULTILINE)
    return [content for language, content in every if language in languages]


def languages(text):
    """The language of every code block, as written behind its opening fence."""
    fences = re.findall(r"^[ \t]*```(.*)$", text, re.MULTILINE)
    return fences[::2]


def one_line(text):
    """With single spaces, so that wrapping and alignment do not matter."""
    return " ".join(text.split())


def here_document(text, name):
    """The content of a file that a shell block writes by `cat > NAME <<'EOF'`."""
    (content,) = re.findall(rf"cat > {re.escape(name)} <<'EOF'\n(.*?\n)EOF\n", text, re.DOTALL)
    return content


def shell_lines(text):
    """Every line of the shell blocks: continued lines joined, comments and here-documents cut."""
    for block in blocks(text, "bash", "sh"):
        without_content = re.sub(r"(<<'(\w+)')\n.*?\n\2\n", r"\1\n", block, flags=re.DOTALL)
        for line in without_content.replace("\\\n", " ").splitlines():
            if line.strip():
                yield one_line(COMMENT.sub("", line))


def commands_in_sentences(text):
    """Commands with arguments, in backquotes."""
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    commands = r"tupe\s+[a-z-]+|launch/[\w/]+\.\w+|pip install|python -m|hf download|jupyter lab"
    for found in re.findall(rf"`((?:{commands})\s+(?!--help)[^`]+)`", outside):
        yield one_line(found)

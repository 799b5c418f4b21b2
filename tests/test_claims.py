"""docs/claims.md: every strong sentence has a test or a command that would show it to be false."""

import ast
import functools
import re
import shlex
from collections import defaultdict
from dataclasses import dataclass

import pytest

from tests.documents import ROOT, one_line, pages, text_of
from tests.test_documented_commands import COMMANDS, PLACEHOLDERS
from tupe_jax import cli

CLAIMS = "docs/claims.md"
PAGES = [page for page in pages("README.md", "docs/*.md", "launch/README.md") if page != CLAIMS]
STRONG = re.compile(
    r"bit[- ]for[- ]bit|\bbitwise\b|to the (?:bit|letter)|\bexact(?:ly)?\b|\bidentical(?:ly)?\b"
    r"|\bequals?\b|\bnever\b|\balways\b|\bdeterministic(?:ally)?\b|\blossless(?:ly)?\b"
    r"|\bsurvives?\b|\bto \d+(?:\.\d+)?e-\d+|(?:no|without a) downloads?\b"
    r"|nothing is (?:ever )?(?:downloaded|built)|\bsame bytes\b|bytes come out the same"
    r"|the same (?:on|in|for) (?:every|any|all)|on (?:all|any) mesh(?:es)?\b|whatever the mesh",
    re.IGNORECASE,
)
ROW = re.compile(r'\| "(?P<words>[^|]+)" \| (?P<falsifiers>`[^|]+`) \| (?P<checked_on>[^|]+) \|')
HEAD = ["| claim | falsified by | checked on |", "|---|---|---|"]
NO_CLAIM = (
    "the published sets were never released",
    "never more weight farther away",
    "every constituent of exactly k words",
    "fine-tuning is not exactly theirs",
    "as if they never overlapped",
    "identical-word probing of public models",
    "by identical words, 64 of them",
    "The work directory must be the same for all processes",
)
"""Where a strong word says nothing of this project, or denies something."""


@dataclass(frozen=True)
class Claim:
    page: str
    words: str
    falsifiers: tuple[str, ...]
    checked_on: str


def read_claims(text):
    """The rows of every section; a line that is no row is an error."""
    for section in text.split("\n## ")[1:]:
        page, *lines = filter(None, section.splitlines())
        if lines[:2] != HEAD:
            raise ValueError(f"{page}: the section does not begin with the head of the table")
        for line in lines[2:]:
            row = ROW.fullmatch(line)
            if row is None:
                raise ValueError(f"{page}: not a row: {line}")
            named = tuple(re.findall(r"`([^`]+)`", row["falsifiers"]))
            yield Claim(page, row["words"], named, row["checked_on"])


ALL = list(read_claims(text_of(CLAIMS)))
BY_PAGE = defaultdict(list)
for claim in ALL:
    BY_PAGE[claim.page].append(claim)


@functools.cache
def functions_in(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def without_code(page):
    return one_line(re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL))


@pytest.mark.parametrize(
    "line",
    [
        '| "no second cell" | CPU |',
        '| "no test" | by hand | CPU |',
        "| no quotes | `tests/x.py::test_x` | CPU |",
        '| "no place" | `tests/x.py::test_x` | |',
        '| "a cell too many" | `tests/x.py::test_x` | CPU | CPU |',
        "a sentence",
    ],
)
def test_a_line_that_is_no_row_is_an_error(line):
    row = '| "words" | `tests/x.py::test_x` | CPU |'
    page = "\n".join(["# Claims", "", "## README.md", "", *HEAD, row])
    assert list(read_claims(page)) == [Claim("README.md", "words", ("tests/x.py::test_x",), "CPU")]
    with pytest.raises(ValueError, match="not a row"):
        list(read_claims(f"{page}\n{line}\n"))


@pytest.mark.parametrize(
    "words",
    [
        "Results are bit-for-bit equal",
        "bitwise the same",
        "the outputs are identical",
        "it equals theirs",
        "agrees to 3e-6",
        "it survives a crash",
        "deterministic on all meshes",
        "there is no download",
        "the same bytes",
    ],
)
def test_these_words_are_strong(words):
    assert STRONG.search(words)


@pytest.mark.parametrize("claim", ALL, ids=lambda claim: f"{claim.page}: {claim.words[:60]}")
def test_a_claim_stands_on_its_page_and_can_be_falsified(claim):
    assert claim.words in one_line(text_of(claim.page))
    assert claim.falsifiers
    assert claim.checked_on
    for named in claim.falsifiers:
        if named.startswith("tests/"):
            file, _, name = named.partition("::")
            assert name in functions_in(file), named
        else:
            for placeholder, value in PLACEHOLDERS.items():
                named = named.replace(placeholder, value)
            program, command, *arguments = shlex.split(named)
            assert program == "tupe"
            cli.parse(COMMANDS[command], arguments)


def spans(text, phrases):
    """Where each phrase begins and ends, every time that it occurs."""
    return [found.span() for phrase in phrases for found in re.finditer(re.escape(phrase), text)]


@pytest.mark.parametrize("page", PAGES)
def test_every_strong_word_is_part_of_a_claim(page):
    text = without_code(page)
    known = spans(text, [*NO_CLAIM, *(claim.words for claim in BY_PAGE[page])])
    alone = [
        text[max(0, word.start() - 60) : word.end() + 40]
        for word in STRONG.finditer(text)
        if not any(begin <= word.start() and word.end() <= end for begin, end in known)
    ]
    assert alone == []


def test_every_page_of_the_table_is_a_page():
    assert BY_PAGE.keys() <= set(PAGES)


@pytest.mark.parametrize("phrase", NO_CLAIM)
def test_an_exception_is_still_needed(phrase):
    assert any(phrase in without_code(page) for page in PAGES)

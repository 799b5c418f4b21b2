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
    r"bit for bit|to the (?:bit|letter)|\bexact(?:ly)?\b|\bnever\b|\balways\b|to 1e-5"
    r"|nothing is (?:ever )?(?:downloaded|built)|the same (?:on|in|for) (?:every|any)",
    re.IGNORECASE,
)
NO_CLAIM = (
    "the published sets were never released",
    "never more weight farther away",
    "every constituent of exactly k words",
    "fine-tuning is not exactly theirs",
    "as if they never overlapped",
)
"""Where a strong word says nothing of this project, or denies."""


@dataclass(frozen=True)
class Claim:
    page: str
    words: str
    falsifiers: tuple[str, ...]
    checked_on: str


def read_claims():
    for section in text_of(CLAIMS).split("\n## ")[1:]:
        page, *lines = section.splitlines()
        rows = [line.strip("|").split(" | ") for line in lines if line.startswith('| "')]
        for words, falsifiers, checked_on in rows:
            named = tuple(re.findall(r"`([^`]+)`", falsifiers))
            yield Claim(page, words.strip().strip('"'), named, checked_on.strip())


ALL = list(read_claims())
BY_PAGE = defaultdict(list)
for claim in ALL:
    BY_PAGE[claim.page].append(claim)


@functools.cache
def functions_in(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def without_code(page):
    return one_line(re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL))


@pytest.mark.parametrize("claim", ALL, ids=lambda claim: f"{claim.page}: {claim.words[:60]}")
def test_a_claim_stands_on_its_page_and_can_be_falsified(claim):
    assert claim.words in without_code(claim.page)
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

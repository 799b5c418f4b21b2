"""Every documented command is a step of a workflow, run by a named test, or excused by a reason."""

import importlib
import re
from itertools import chain
from pathlib import Path

import pytest

from tests.documents import (
    ROOT,
    blocks,
    commands_in_sentences,
    languages,
    one_line,
    pages,
    shell_lines,
    text_of,
)
from tests.workflows.elsewhere import NOT_RUN, RUN_BY

PAGES = pages("README.md", "docs/*.md", "launch/README.md")
FILES = sorted(set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)})
WORKFLOWS = [importlib.import_module(f"tests.workflows.{file.stem}") for file in FILES]
DECLARED = {one_line(step.documented) for workflow in WORKFLOWS for step in workflow.STEPS}
ELSEWHERE = list(chain(*RUN_BY.values(), *NOT_RUN.values()))


def documented_lines(page):
    return [*shell_lines(text_of(page)), *commands_in_sentences(text_of(page))]


@pytest.mark.parametrize("page", PAGES)
def test_no_block_of_commands_is_overlooked(page):
    """Commands are read from blocks in bash or sh; `text` and no language are for other things."""
    assert set(languages(text_of(page))) <= {"bash", "sh", "python", "text", ""}
    for block in [*blocks(text_of(page), "text"), *blocks(text_of(page), "")]:
        assert not re.search(r"^\s*(?:\$ )?(?:tupe|pip|python|launch/\S+) ", block, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_documented_command_is_run_or_excused(page):
    known = {*DECLARED, *ELSEWHERE}
    assert [line for line in documented_lines(page) if line not in known] == []


def test_what_is_excused_is_still_documented_and_not_a_step():
    documented = set(chain(*map(documented_lines, PAGES)))
    assert [line for line in ELSEWHERE if line not in documented] == []
    assert [line for line in ELSEWHERE if line in DECLARED] == []
    assert len(ELSEWHERE) == len(set(ELSEWHERE))


def test_every_step_is_still_documented():
    """As a line, or as the words of a sentence that ask for it."""
    documented = set(chain(*map(documented_lines, PAGES)))
    text = "\n".join(one_line(text_of(page)) for page in PAGES)
    assert [words for words in DECLARED if words not in documented and words not in text] == []


@pytest.mark.parametrize("test", RUN_BY)
def test_a_test_that_runs_a_line_exists(test):
    file, _, name = test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.__name__)
def test_every_step_of_a_workflow_is_a_test_of_its_own(workflow):
    (mark,) = workflow.test_step.pytestmark
    assert mark.args[1] is workflow.STEPS


@pytest.mark.parametrize("page", PAGES)
def test_python_that_needs_a_trained_model_is_run_with_one(page):
    """By `tests/test_quickstart.py`; `tests/test_package.py` runs all other blocks."""
    needy = [block for block in blocks(text_of(page), "python") if "runs/" in block]
    section = text_of("README.md").partition("## Use a model")[2].partition("\n## ")[0]
    assert needy == (blocks(section, "python") if page == "README.md" else [])

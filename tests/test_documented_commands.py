"""Every `tupe` line that a reader may copy is one that the command takes.

Nothing is run here, but arguments are parsed, and configs are loaded with what the line sets.
"""

import importlib
import json
import re
import shlex

import pytest

from tests.documents import ROOT, commands_in_sentences, pages, shell_lines, text_of
from tests.notebooks import NOTEBOOKS, code_cells, parameters_cell, read, values_of
from tupe_jax import cli
from tupe_jax.ablation.config import ablation_config
from tupe_jax.commands.config import resolve
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.validation import from_mapping
from tupe_jax.finetune.config import FinetuneConfig, GlueConfig
from tupe_jax.model.positions.encoding import RELATIVE

PAGES = pages("*.md", "docs/*.md", "launch/*.md")
COMMANDS = {command.name: command for command in cli.COMMANDS}
READ_BY = {
    "ablate": ablation_config,
    "config": resolve,
    "finetune": lambda values: from_mapping(FinetuneConfig, values, "config"),
    "glue": lambda values: from_mapping(GlueConfig, values, "config"),
}
"""Who reads a command's config; all others pre-train."""
PLACEHOLDERS = {"=N": "=8", "=TARGET": "=v5e:16x16", "=SEQUENCES": "=32", " [MODEL ...]": " MODEL"}
"""What a sentence has in place of a value that is checked."""
TELLING = re.compile(r"(?<=\S)   +\S.*|  +# .*")
"""The explanation after a command in a help text or a block."""


def in_blocks(text):
    """Lines of shell blocks that begin with `tupe`."""
    return [line for line in shell_lines(text) if line.startswith("tupe ")]


def in_sentences(text):
    """Commands of `tupe` with arguments in backquotes, with a value for each placeholder."""
    for line in commands_in_sentences(text):
        if not line.startswith("tupe "):
            continue
        for placeholder, value in PLACEHOLDERS.items():
            line = re.sub(rf"{re.escape(placeholder)}(?=\s|$)", value, line)
        yield line


def in_help(command):
    """Examples in a command's own help."""
    text = importlib.import_module(command.module).__doc__
    return [TELLING.sub("", line.strip()) for line in text.splitlines() if "  tupe " in line[:7]]


def in_notebook(file):
    """Commands in its cells, with what its parameters say."""
    notebook = read(file)
    parameters = values_of(parameters_cell(notebook))
    source = "\n".join(cell.source for cell in code_cells(notebook)).replace("\\\n", " ")
    lines = re.findall(r"^\s*!(tupe .*)", source, re.MULTILINE)
    return [line.format(**parameters) for line in lines]


def documented():
    found = {line: page for page in PAGES for line in in_sentences(text_of(page))}
    found |= {line: page for page in PAGES for line in in_blocks(text_of(page))}
    found |= {line: f"tupe {c.name} --help" for c in cli.COMMANDS for line in in_help(c)}
    found |= {line: file.name for file in NOTEBOOKS for line in in_notebook(file)}
    return [pytest.param(line, id=f"{where}: {line}") for line, where in found.items()]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the files that cells of notebooks write."""
    folder = tmp_path_factory.mktemp("written")
    for file in NOTEBOOKS:
        for cell in code_cells(read(file)):
            magic, _, text = cell.source.partition("\n")
            if magic.startswith("%%writefile "):
                (folder / magic.split()[1]).write_text(text)
    return folder


@pytest.fixture
def encodings_as_before():
    """Without those that a config file has registered."""
    before = dict(RELATIVE)
    yield
    RELATIVE.clear()
    RELATIVE.update(before)


@pytest.mark.usefixtures("encodings_as_before")
@pytest.mark.parametrize("line", documented())
def test_a_line_that_can_be_copied_is_a_command(line, written, monkeypatch):
    monkeypatch.chdir(written)
    before_redirection, *_ = re.split(r" >>? ", line)
    _, name, *words = shlex.split(before_redirection, comments=True)
    arguments = cli.parse(COMMANDS[name], words)
    if getattr(arguments, "config", None) is not None:  # a report about all studies has none
        READ_BY.get(name, from_config_dict)(load_config(arguments.config, arguments.overrides))


def test_every_command_is_shown():
    text = "\n".join(map(text_of, PAGES))
    assert COMMANDS.keys() <= set(re.findall(r"(?:^|[`(])tupe ([a-z-]+)", text, re.MULTILINE))


def headings(page):
    """Names by which a heading of a page is linked to."""
    titles = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    here = ROOT / page
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text_of(page)):
        file, _, heading = link.partition("#")
        target = here.parent / file if file else here
        assert target.exists(), link
        assert not heading or heading in headings(target), link


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page):
    """Configs, tests and modules in backquotes, such as `configs/tupe_r.py`."""
    named = re.findall(r"`((?:configs|tests|tupe_jax|launch|docs)/[\w./*-]*)`", text_of(page))
    assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_a_notebook_is_saved_as_it_ran_and_names_nothing_of_its_machine(file):
    cells = code_cells(read(file))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    without_pictures = re.sub(r'"image/png": ".*?"', "", json.dumps(outputs))
    assert not re.findall(r"(?<![\w.])/(?:home|opt|root|tmp|work|usr)/|https?://", without_pictures)
    assert file.stat().st_size < 500_000


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_a_notebook_computes_after_its_commands(file):
    """An accelerator serves one process at a time: commands would find it taken."""
    sources = [cell.source for cell in code_cells(read(file))]
    (first_load, *_) = (n for n, source in enumerate(sources) if "tupe_jax.load(" in source)
    assert not [source for source in sources[first_load:] if "!tupe" in source]


def test_notebooks_begin_alike():
    """Including the cell that installs what is missing and checks the machine."""
    first = {code_cells(read(file))[0].source for file in NOTEBOOKS}
    assert len(first) == 1
    assert "!tupe doctor" in first.pop()

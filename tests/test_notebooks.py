"""The notebooks, from start to end: every cell as it stands there, but for smaller parameters.

They share a folder, as a user's would: the second and the fourth find the first one's model.
"""

import pytest
from nbclient.exceptions import CellExecutionError

from tests.notebooks import (
    NOTEBOOKS,
    code_cells,
    execute,
    parameters_cell,
    read,
    values_of,
)
from tests.training.conftest import compile_once

pytestmark = pytest.mark.slow

__all__ = ["compile_once"]

SMALL = {
    "1_quickstart": {"STEPS": 3},
    "2_what_positions_learn": {"STEPS": 3, "LENGTH": 12, "WORDS": 4},
    "3_your_own_encoding": {"STEPS": 3, "SEEDS": "0", "TEXT": "builtin:2000"},
    "4_finetune_your_own_file": {"STEPS": 3, "EPOCHS": 1, "SEEDS": "0", "TRAIN": 64, "DEV": 32},
}
TOLD = {
    "1_quickstart": ["validation loss", "tupe_r from runs/quickstart, step 3", "[MASK]"],
    "2_what_positions_learn": ["mirror symmetry", "BERT-A, head", "position-position"],
    "3_your_own_encoding": ["| T5 |", "| window |", "| TUPE-R |", "| TUPE-window |"],
    "4_finetune_your_own_file": ["dev accuracy", "predicts mine: acceptable, unacceptable"],
}
"""What a reader must find in the outputs, whatever was learned."""


def kinds_of_output(cell):
    """Text, plots and other outputs."""
    return {
        kind
        for output in cell.outputs
        for kind in (output.data if "data" in output else [output.output_type])
    }


def text_of(notebook):
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    shown = [output.get("data", {"text/plain": output.get("text", "")}) for output in outputs]
    return "\n".join(data.get("text/markdown", data.get("text/plain", "")) for data in shown)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("notebooks")


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_runs_and_shows_in_small_what_it_has_saved_in_full(file, folder):
    name, notebook, saved = file.stem, read(file), read(file)
    cell = parameters_cell(notebook)
    assert SMALL[name].keys() == values_of(cell).keys()
    cell.source = "\n".join(f"{key} = {value!r}" for key, value in SMALL[name].items())
    execute(notebook, folder)
    for ran, before in zip(code_cells(notebook), code_cells(saved), strict=True):
        assert kinds_of_output(ran) >= kinds_of_output(before), ran.source
    text = text_of(notebook)
    assert not [words for words in TOLD[name] if words not in text], text


def test_a_command_that_fails_ends_the_notebook(folder):
    notebook = read(NOTEBOOKS[0])
    install, *_ = code_cells(notebook)
    install.source = install.source.replace("!tupe doctor", "!tupe pretrain --config=nowhere")
    with pytest.raises(CellExecutionError, match="'nowhere'"):
        execute(notebook, folder)

"""Executes notebooks: in small for the tests, in full to save their outputs.

    python -m tests.notebooks                                           # all, one after the other
    python -m tests.notebooks notebooks/2_what_positions_learn.ipynb    # some

They run in a folder `runs-of-notebooks` here, where the second and the fourth find the model of the
first, and unfinished runs resume.
"""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PARAMETERS = "parameters"
"""The tag of the cell that a test replaces."""


def read(file):
    return nbformat.read(file, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters_cell(notebook):
    (cell,) = (c for c in code_cells(notebook) if PARAMETERS in c.metadata.get("tags", ()))
    return cell


def values_of(cell):
    """What a cell of assignments sets."""
    values = {}
    exec(cell.source, values)
    return {name: value for name, value in values.items() if not name.startswith("__")}


def execute(notebook, folder):
    """Run all cells in a folder, with this Python and this source tree; outputs stay in it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    client = NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    # libtpu, which the tests install, would warn about a missing TPU.
    here = {"JAX_PLATFORMS": "cpu", **os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    client.execute(env=here)
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "text" in output:  # commands see a terminal, which ends lines in its own way
                output.text = output.text.replace("\r\n", "\n")


def main():
    folder = Path("runs-of-notebooks")
    folder.mkdir(exist_ok=True)
    for file in map(Path, sys.argv[1:] or NOTEBOOKS):
        print(file, flush=True)
        notebook = read(file)
        execute(notebook, folder)
        nbformat.write(notebook, file)


if __name__ == "__main__":
    main()

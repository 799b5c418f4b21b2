"""Small files in GLUE's original layout."""

from collections.abc import Sequence
from pathlib import Path

from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import TASKS


def write_split(folder: Path, task: str, file: str, examples: Sequence[Example]) -> Path:
    """Labelled examples, with the columns that the task's own files have."""
    form = TASKS[task].form
    header = form.header or form.columns.names
    lines = [] if form.header else ["\t".join(header)]
    for example in examples:
        label = str(example.label) if form.classes is None else form.classes[int(example.label)]
        row = {form.columns.sentence1: example.sentence1, form.columns.label: label}
        if form.columns.sentence2 is not None:
            row[form.columns.sentence2] = str(example.sentence2)
        lines.append("\t".join(row.get(name, "-") for name in header))
    return write(folder / TASKS[task].folder / file, lines)


def write_test_split(folder: Path, task: str, file: str, texts: Sequence[Sequence[str]]) -> Path:
    """Texts without labels, with an index, as GLUE's test files are."""
    columns = TASKS[task].form.columns
    header = ["index", columns.sentence1, *([columns.sentence2] if columns.sentence2 else [])]
    rows = ["\t".join([str(index), *text]) for index, text in enumerate(texts)]
    return write(folder / TASKS[task].folder / file, ["\t".join(header), *rows])


def write(path: Path, lines: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path

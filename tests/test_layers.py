"""Imports go in one direction: a part of the package knows only what stands before it."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tupe_jax"
LAYERS = (
    "utils",
    "config",
    "tokenizers",
    "distributed",
    "kernels",
    "model",
    "run",
    "checkpointing",
    "data",
    "objectives",
    "interop",
    "inference",
    "training",
    "aot",
    "finetune",
    "bench",
    "rehearsal",
    "lab",
    "ablation",
    "cli",
    "commands",
)
LAYER_OF = {part: number for number, part in enumerate(LAYERS)}


def imports(file):
    """The parts of the package that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ImportFrom(module="tupe_jax", names=names):
                yield from (name.name for name in names if name.name != "__version__")
            case ast.ImportFrom(module=str(module)) if module.startswith("tupe_jax."):
                yield module.split(".")[1]
            case ast.Import(names=names):
                yield from (n.name.split(".")[1] for n in names if n.name.startswith("tupe_jax."))


def test_nothing_imports_what_stands_after_it():
    found = []
    for file in PACKAGE.rglob("*.py"):
        part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue
        found += [
            f"{file.relative_to(PACKAGE)} imports {other}"
            for other in imports(file)
            if LAYER_OF[other] > LAYER_OF[part]
        ]
    assert not found

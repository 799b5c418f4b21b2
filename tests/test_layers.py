"""Imports go in one direction: a part of the package knows only what stands before it."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tupe_jax"
MODEL = ("model", "platform")  # `platform` chooses the attention of a model: both know each other
LAYERS = (
    ("errors",),
    ("alone", "checks", "special_tokens"),
    ("config", "config_files", "host_memory", "logical_axes"),
    ("kernels", "recipes"),
    MODEL,
    ("data", "objectives", "parallel"),
    ("inference", "interop"),
    ("training",),
    ("pretrained",),
    ("model_card", "trained_model"),
    ("finetune",),
    ("bench", "lab"),
    ("ablation",),
    ("cli", "doctor"),
    ("completion",),
    ("commands",),
)
LAYER_OF = {part: number for number, layer in enumerate(LAYERS) for part in layer}


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
        for other in imports(file):
            same_layer = part != other and LAYER_OF[other] == LAYER_OF[part]
            if LAYER_OF[other] > LAYER_OF[part] or (same_layer and part not in MODEL):
                found.append(f"{file.relative_to(PACKAGE)} imports {other}")
    assert not found

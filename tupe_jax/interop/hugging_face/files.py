"""Reading a folder in Hugging Face's layout; nothing in it is executed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy

from tupe_jax.errors import UserError
from tupe_jax.interop.arrays import Array
from tupe_jax.interop.checkpoint_file import read_torch

SETTINGS = "config.json"
WEIGHTS, TORCH_WEIGHTS = "model.safetensors", "pytorch_model.bin"


def read_config(folder: Path) -> dict[str, Any] | None:
    """`config.json`, if it is one of Hugging Face's: it names a `model_type`."""
    try:
        config = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) and "model_type" in config else None


def read_arrays(folder: Path) -> Mapping[str, Array]:
    """All arrays by their names, from whichever file there is."""
    for name in (WEIGHTS, TORCH_WEIGHTS):
        index = folder / f"{name}.index.json"
        if index.exists():
            parts = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            return {k: v for part in parts for k, v in _read(folder / part).items()}
        if (folder / name).exists():
            return _read(folder / name)
    raise UserError(f"{folder} has no weights: neither {WEIGHTS} nor {TORCH_WEIGHTS}")


def _read(file: Path) -> Mapping[str, Array]:
    if file.suffix != ".safetensors":
        return read_torch(file)[0]
    try:
        return safetensors.numpy.load_file(file)
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None

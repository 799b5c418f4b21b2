"""Read the files of a folder in Hugging Face's layout; nothing in them is executed."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import safetensors
import safetensors.numpy

from tupe_jax.interop.fairseq_checkpoint import read_torch
from tupe_jax.interop.param_mapping import check_type
from tupe_jax.model.params import Array
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import local_file
from tupe_jax.utils.paths import Path

CONFIG = "config.json"
WEIGHTS, TORCH_WEIGHTS = "model.safetensors", "pytorch_model.bin"


def read_config(folder: Path) -> dict[str, Any] | None:
    """`config.json`, or None if it is not one of Hugging Face: it must have a `model_type`."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) and "model_type" in config else None


def require_config(folder: Path) -> dict[str, Any]:
    """`config.json`; raise if it is not one of Hugging Face."""
    config = read_config(folder)
    if config is not None:
        return config
    file = folder / CONFIG
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; download a model's files into one first")
    if not file.exists():
        raise UserError(f"{folder} has no {CONFIG}: it is not a model in Hugging Face's layout")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    if isinstance(found, dict) and "classification_heads" in found:
        raise UserError(f"{folder} is a tupe_jax model folder already; use it as it is")
    raise UserError(f"{file} has no model_type: it is not a model in Hugging Face's layout")


def read_arrays(folder: Path) -> Mapping[str, Array]:
    """All arrays by name, from safetensors or PyTorch files, in the order of `transformers`."""
    for name in (WEIGHTS, TORCH_WEIGHTS):
        index = folder / f"{name}.index.json"
        if (folder / name).exists():
            return _read(folder / name)
        if index.exists():
            return {k: v for part in _parts(index) for k, v in _read(part).items()}
    raise UserError(f"{folder} has no weights: neither {WEIGHTS} nor {TORCH_WEIGHTS}")


def _parts(index: Path) -> list[Path]:
    """The files that an index lists."""
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return sorted({index.parent / name for name in names})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{index} has no weight_map that names the files of arrays") from None


def _read(file: Path) -> Mapping[str, Array]:
    if file.suffix != ".safetensors":
        return read_torch(file)[0]
    try:
        with local_file(file) as local:
            _check_types(file, local)
            return safetensors.numpy.load_file(local)
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None


def _check_types(file: Path, local: pathlib.Path) -> None:
    """Raise if there are numbers of less than 16 bits, which NumPy has no type for."""
    with safetensors.safe_open(local, framework="numpy") as arrays:
        for name in arrays.keys():  # noqa: SIM118 (it is no mapping)
            kind = arrays.get_slice(name).get_dtype()
            if kind.startswith("F") and kind not in ("F16", "F32", "F64"):
                check_type(f"{file}: {name}", kind)

"""Reading a released TUPE checkpoint file: PyTorch's `.pt`, or the same arrays as `.npz`."""

import argparse
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tupe_jax.errors import UserError
from tupe_jax.interop.arrays import Array


@dataclass(frozen=True)
class ReleasedCheckpoint:
    """The arrays of a checkpoint by their released names, and the settings it was trained with."""

    state: Mapping[str, Array]
    num_heads: int | None
    pre_layer_norm: bool | None


def read_checkpoint(path: Path) -> ReleasedCheckpoint:
    """Read a `.pt` or `.npz` file; nothing in it is executed."""
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    state, settings = _read_npz(path) if path.suffix == ".npz" else _read_torch(path)
    heads, pre = settings.get("encoder_attention_heads"), settings.get("encoder_normalize_before")
    return ReleasedCheckpoint(
        state=state,
        num_heads=None if heads is None else int(heads),
        pre_layer_norm=None if pre is None else bool(pre),
    )


def _read_npz(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays named as released, or under `model/` with settings under `config/` beside them."""
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable .npz file: {error}") from error
    settings = {n.removeprefix("config/"): a for n, a in arrays.items() if n.startswith("config/")}
    nested = {n.removeprefix("model/"): a for n, a in arrays.items() if n.startswith("model/")}
    return nested or {n: a for n, a in arrays.items() if not n.startswith("config/")}, settings


def _read_torch(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """`model` and `args` of a fairseq checkpoint, or a bare state dict."""
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"reading {path} needs PyTorch: pip install 'tupe_jax[torch]' (or convert it to .npz)"
        ) from error
    try:
        # fairseq keeps its settings in a Namespace, the only class allowed beside plain arrays.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds; all mean that the file cannot be used
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} is not a PyTorch checkpoint we can read: {first_line}") from error
    if not isinstance(content, Mapping):
        raise UserError(f"{path} holds a {type(content).__name__}, not a checkpoint")
    state = content.get("model", content)
    arguments = content.get("args")
    if not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        raise UserError(f"{path} has no 'model' with arrays; is it a fairseq checkpoint?")
    arrays = {name: tensor.float().numpy() for name, tensor in state.items()}
    return arrays, vars(arguments) if isinstance(arguments, argparse.Namespace) else {}

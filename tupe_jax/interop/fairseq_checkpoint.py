"""Read and write released TUPE checkpoint files: `.pt`, and for reading also `.npz`."""

import argparse
import pathlib
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tupe_jax.interop.fairseq import to_state_dict
from tupe_jax.interop.official_tokens import OFFICIAL_PAD_ID, dictionary_lines, to_official
from tupe_jax.interop.param_mapping import check_type
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import Array, classification_heads_of
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import local_file
from tupe_jax.utils.paths import Path

CHECKPOINT, DICTIONARY = "checkpoint.pt", "dict.txt"


@dataclass(frozen=True)
class ReleasedCheckpoint:
    """The state dict of a checkpoint file, and the settings in it; None if it has none."""

    state: Mapping[str, Array]
    num_heads: int | None
    pre_layer_norm: bool | None
    pad_id: int | None


METERS = ("AverageMeter", "StopwatchMeter", "TimeMeter")

_numpy_scalar = np.float64(0).__reduce__()[0]
NUMPY_SCALARS = (
    (_numpy_scalar, "numpy.core.multiarray.scalar"),
    (_numpy_scalar, "numpy._core.multiarray.scalar"),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i4", "i8")),
)
"""What pickled scalars of NumPy 1 and 2 refer to, in addition to what PyTorch allows."""


class _Ignored:
    """Stands for a fairseq class that is not needed; executes nothing."""

    def __setstate__(self, state: object) -> None:
        pass


def read_checkpoint(path: Path) -> ReleasedCheckpoint:
    """Read a `.pt` or `.npz` file; nothing in it is executed."""
    if not path.is_file():
        raise UserError(f"{path} is a folder, not a file" if path.exists() else f"no file {path}")
    state, settings = _read_npz(path) if path.suffix == ".npz" else read_torch(path)
    heads, pre = settings.get("encoder_attention_heads"), settings.get("encoder_normalize_before")
    pad = settings.get("pad_id")
    return ReleasedCheckpoint(
        state=state,
        num_heads=None if heads is None else int(heads),
        pre_layer_norm=None if pre is None else bool(pre),
        pad_id=None if pad is None else int(pad),
    )


def write_checkpoint(
    folder: pathlib.Path, model: MaskedLM, tokenizer: Tokenizer | None, num_updates: int
) -> None:
    """Write `checkpoint.pt` and `dict.txt` as the official code reads them, in its numbering.

    Without a tokenizer, the model's tokens must already have the official ids, as in an imported
    official model, and no `dict.txt` is written.
    """
    torch = _torch(f"writing {CHECKPOINT}")
    state = to_state_dict(model)
    if tokenizer is not None:
        (folder / DICTIONARY).write_text(dictionary_lines(tokenizer), encoding="utf-8")
        state = to_official(state)
    elif model.config.pad_id != OFFICIAL_PAD_ID:
        raise UserError(
            f"the official code pads with token {OFFICIAL_PAD_ID}, the model with token "
            f"{model.config.pad_id}; to renumber its tokens, give its tokenizer: --vocabulary=FILE"
        )
    content = {
        "args": _official_arguments(model),
        "model": {name: torch.from_numpy(array) for name, array in state.items()},
        "optimizer_history": [
            {
                "criterion_name": "MaskedLmLoss",
                "optimizer_name": "FairseqAdam",
                "lr_scheduler_state": {"best": None},
                "num_updates": num_updates,
            }
        ],
        "extra_state": {
            "train_iterator": {"epoch": 0, "iterations_in_epoch": 0},
            "val_loss": None,
        },
    }
    torch.save(content, folder / CHECKPOINT)


def _official_arguments(model: MaskedLM) -> argparse.Namespace:
    """The options that the official code builds its task and model from."""
    config = model.config
    return argparse.Namespace(
        task="masked_lm",
        arch="bert_base",
        criterion="masked_lm",
        data=".",  # the folder of dict.txt
        seed=1,
        tokens_per_sample=config.position.max_length,
        max_positions=config.position.max_length,
        encoder_layers=config.num_layers,
        encoder_embed_dim=config.hidden_size,
        encoder_ffn_embed_dim=config.mlp_size,
        encoder_attention_heads=config.num_heads,
        encoder_normalize_before=config.pre_layer_norm,
        embedding_normalize=True,
        rel_pos=config.position.relative == "t5",
        activation_fn="gelu",
        pooler_activation_fn="tanh",
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=0.0,
        pooler_dropout=config.classifier_dropout,
        load_checkpoint_heads=bool(classification_heads_of(model)),
    )


def _read_npz(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays by released name, or under `model/`; settings are under `config/`."""
    try:
        with local_file(path) as local, np.load(local) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable .npz file: {error}") from error
    settings = {n.removeprefix("config/"): a for n, a in arrays.items() if n.startswith("config/")}
    nested = {n.removeprefix("model/"): a for n, a in arrays.items() if n.startswith("model/")}
    return nested or {n: a for n, a in arrays.items() if not n.startswith("config/")}, settings


def read_torch(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """`model` and `args` of a fairseq checkpoint, or a bare state dict."""
    torch = _torch(f"reading {path}")
    # fairseq also saves its settings, scores and, in some releases, stopwatches.
    allowed: list[Any] = [
        argparse.Namespace,
        *((_Ignored, f"fairseq.meters.{name}") for name in METERS),
        *NUMPY_SCALARS,
    ]
    try:
        with torch.serialization.safe_globals(allowed), local_file(path) as local:
            content = torch.load(local, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types
        raise UserError(f"{path} is not a readable PyTorch checkpoint: {_reason(error)}") from error
    state = content.get("model", content) if isinstance(content, Mapping) else None
    # Some Hugging Face files have a config among the arrays.
    tensors = {
        name: value
        for name, value in (state.items() if isinstance(state, Mapping) else ())
        if isinstance(value, torch.Tensor)
    }
    if not tensors:
        raise UserError(f"{path} has no state dict, neither at the top nor under 'model'")
    arguments = content.get("args")
    arrays = {name: _array(f"{path}: {name}", tensor) for name, tensor in tensors.items()}
    return arrays, vars(arguments) if isinstance(arguments, argparse.Namespace) else {}


def _array(name: str, tensor: Any) -> Array:
    """Weights in float32; integers as they are, which may be indices or quantized weights."""
    if not (tensor.is_floating_point() or tensor.is_quantized):
        return np.asarray(tensor.numpy())
    check_type(name, str(tensor.dtype).removeprefix("torch."))
    return np.asarray(tensor.float().numpy())


def _torch(purpose: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise UserError(f"{purpose} needs PyTorch: pip install 'tupe_jax[torch]'") from error
    return torch


def _reason(error: Exception) -> str:
    """The first line of torch's message, without colours and advice."""
    text = re.sub(r"\x1b\[\d*m", "", str(error)) or type(error).__name__
    refused = re.search(r"GLOBAL (\S+)", text)
    if refused:
        return f"it would execute {refused[1]}, which is not allowed"
    if text.startswith("Weights only load failed"):  # followed by advice to load unsafely
        return "it is damaged, or not a PyTorch file"
    return text.splitlines()[0]

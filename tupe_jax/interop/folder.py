"""A model as a folder: `model.safetensors` with its arrays, `config.json` with its settings.

`vocabulary.model`, or `vocabulary.json` of an imported model, stands beside them where the model's
vocabulary is known.
"""

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.numpy

from tupe_jax.checks import from_mapping
from tupe_jax.config import ModelConfig
from tupe_jax.errors import UserError
from tupe_jax.interop import arrays as flat
from tupe_jax.model.heads import MaskedLM

FORMAT = 1
WEIGHTS, SETTINGS = "model.safetensors", "config.json"
VOCABULARY, IMPORTED_VOCABULARY = "vocabulary.model", "vocabulary.json"


def save_folder(
    model: MaskedLM, folder: str | os.PathLike[str], vocabulary: bytes | None = None
) -> None:
    """Write the model to a folder that must not exist yet; it appears whole or not at all."""
    target = Path(folder)
    if target.exists():
        raise UserError(f"{target} exists already; choose another folder or remove it")
    settings = {
        "format": FORMAT,
        "model": dataclasses.asdict(model.config),
        "classification_heads": flat.classification_heads_of(model),
    }
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {target.parent}: {error.strerror}") from error
    unfinished = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        arrays = {".".join(path): array for path, array in flat.arrays_of(model).items()}
        safetensors.numpy.save_file(arrays, unfinished / WEIGHTS)
        (unfinished / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
        if vocabulary is not None:
            is_imported = vocabulary.startswith(b"{")  # JSON; SentencePiece's are binary
            name = IMPORTED_VOCABULARY if is_imported else VOCABULARY
            (unfinished / name).write_bytes(vocabulary)
        unfinished.chmod(0o755)  # mkdtemp's is for its owner alone
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def load_folder(folder: str | os.PathLike[str]) -> MaskedLM:
    """The model in a folder that `save_folder` wrote, bit for bit."""
    settings_file, weights_file = Path(folder) / SETTINGS, Path(folder) / WEIGHTS
    for file in (settings_file, weights_file):
        if not file.is_file():
            raise UserError(f"{folder} is not a model folder: it has no {file.name}")
    try:
        settings = json.loads(settings_file.read_text())
        saved = safetensors.numpy.load_file(weights_file)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{settings_file} is not valid JSON, line {error.lineno}: {error.msg}"
        ) from error
    except safetensors.SafetensorError as error:
        raise UserError(f"{weights_file} is damaged: {error}") from error
    if not isinstance(settings, dict) or not {"model", "classification_heads"} <= settings.keys():
        raise UserError(f"{settings_file} lacks 'model' or 'classification_heads'")
    if settings.get("format") != FORMAT:
        raise UserError(
            f"{settings_file} has format {settings.get('format')}; this version reads {FORMAT}"
        )

    def read(wanted: dict[flat.Path, tuple[int, ...]]) -> Mapping[flat.Path, flat.Array]:
        shapes = {".".join(path): shape for path, shape in wanted.items()}
        for name in shapes.keys() | saved.keys():
            ours, theirs = shapes.get(name), saved[name].shape if name in saved else None
            if ours != theirs:
                raise UserError(
                    f"{weights_file}: {name} is {_shape(theirs)}, but {SETTINGS} asks for "
                    f"{_shape(ours)}"
                )
        return {path: saved[".".join(path)] for path in wanted}

    config = from_mapping(ModelConfig, settings["model"], f"{settings_file}: model")
    return flat.model_from(config, settings["classification_heads"], read)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))

"""A model as a folder: `model.safetensors` with its arrays, `config.json` with its settings.

`vocabulary.model`, or `vocabulary.json` of an imported model, stands beside them where the model's
vocabulary is known, and `README.md`, the model card, where somebody wrote one.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from tupe_jax.config.schema import ModelConfig
from tupe_jax.config.validation import from_mapping
from tupe_jax.model import params as flat
from tupe_jax.model.heads import MaskedLM
from tupe_jax.utils.errors import UserError

FORMAT = 1
WEIGHTS, SETTINGS = "model.safetensors", "config.json"
VOCABULARY, IMPORTED_VOCABULARY = "vocabulary.model", "vocabulary.json"
CARD = "README.md"


@dataclass(frozen=True)
class HeadFacts:
    """What a classification head was trained to say, and of what."""

    classes: tuple[str, ...] = ()
    """Their names by number; none: the head gives a score."""
    score_scale: float = 1.0
    """A score is the head's output times this."""
    texts: int | None = None
    """1, or 2 if it reads pairs; None: not known."""
    length: int = 512
    """Longest row in tokens; longer ones were cut."""
    trial: Mapping[str, Any] = field(default_factory=dict)
    """How it was trained and how well, for the model card."""


@dataclass(frozen=True)
class Facts:
    """What is known of a model beside its weights and settings."""

    step: int | None = None
    """Of pre-training."""
    length: int | None = None
    """Tokens in a row of pre-training."""
    heads: Mapping[str, HeadFacts] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    """The config of pre-training and its validation loss, for the model card."""
    origin: str = ""
    """Where it came from, if it was not pre-trained here."""


def save_folder(
    model: MaskedLM,
    folder: str | os.PathLike[str],
    vocabulary: bytes | None = None,
    facts: Facts | None = None,
    card: str | None = None,
) -> None:
    """Write the model to a folder that must not exist yet; it appears whole or not at all."""
    settings = {
        "format": FORMAT,
        "model": dataclasses.asdict(model.config),
        "classification_heads": flat.classification_heads_of(model),
        "facts": dataclasses.asdict(facts or Facts()),
    }
    with whole_folder(folder) as unfinished:
        arrays = {".".join(path): array for path, array in flat.arrays_of(model).items()}
        safetensors.numpy.save_file(arrays, unfinished / WEIGHTS)
        (unfinished / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
        if vocabulary is not None:
            (unfinished / vocabulary_name(vocabulary)).write_bytes(vocabulary)
        if card is not None:
            (unfinished / CARD).write_text(card, encoding="utf-8")


def find_vocabulary(folder: Path) -> Path | None:
    """The vocabulary beside a model, if it has one."""
    files = (folder / name for name in (VOCABULARY, IMPORTED_VOCABULARY))
    return next((file for file in files if file.exists()), None)


def vocabulary_name(content: bytes) -> str:
    """That of the file with this content: an imported vocabulary is JSON, ours is binary."""
    return IMPORTED_VOCABULARY if content.startswith(b"{") else VOCABULARY


@contextlib.contextmanager
def whole_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to fill that must not exist yet; it appears at the end, or never."""
    target = Path(folder)
    if target.exists():
        raise UserError(f"{target} exists already; choose another folder or remove it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise UserError(f"cannot make {target.parent}: {error.strerror}") from error
    try:
        yield unfinished
        unfinished.chmod(0o755)  # mkdtemp's is for its owner alone
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def load_folder(folder: str | os.PathLike[str]) -> MaskedLM:
    """The model in a folder that `save_folder` wrote, bit for bit.

    Its parameters are float32. A file that was converted to float16 or bfloat16 since is read, too.
    """
    settings_file, weights_file = _file(folder, SETTINGS), _file(folder, WEIGHTS)
    settings = _read_settings(settings_file)
    try:
        saved = safetensors.numpy.load_file(weights_file)
    except safetensors.SafetensorError as error:
        raise UserError(f"{weights_file} is damaged: {error}") from error

    def read(wanted: dict[flat.Path, tuple[int, ...]]) -> Mapping[flat.Path, flat.Array]:
        shapes = {".".join(path): shape for path, shape in wanted.items()}
        for name in shapes.keys() | saved.keys():
            ours, theirs = shapes.get(name), saved[name].shape if name in saved else None
            if ours != theirs:
                raise UserError(
                    f"{weights_file}: {name} is {_shape(theirs)}, but {SETTINGS} asks for "
                    f"{_shape(ours)}"
                )
        return {path: _as_float32(weights_file, ".".join(path), saved) for path in wanted}

    config = from_mapping(ModelConfig, settings["model"], f"{settings_file}: model")
    return flat.model_from(config, settings["classification_heads"], read)


def load_facts(folder: str | os.PathLike[str]) -> Facts:
    """What a folder says of its model; a folder of an earlier version says nothing."""
    file = _file(folder, SETTINGS)
    values = dict(_read_settings(file).get("facts", {}))
    heads = {
        name: from_mapping(HeadFacts, head, f"{file}: facts.heads.{name}")
        for name, head in values.pop("heads", {}).items()
    }
    return dataclasses.replace(from_mapping(Facts, values, f"{file}: facts"), heads=heads)


def _file(folder: str | os.PathLike[str], name: str) -> Path:
    file = Path(folder) / name
    if not file.is_file():
        raise UserError(f"{folder} is not a model folder: it has no {name}")
    return file


def _read_settings(settings_file: Path) -> dict[str, Any]:
    try:
        settings = json.loads(settings_file.read_text())
    except json.JSONDecodeError as error:
        raise UserError(
            f"{settings_file} is not valid JSON, line {error.lineno}: {error.msg}"
        ) from error
    if not isinstance(settings, dict) or not {"model", "classification_heads"} <= settings.keys():
        raise UserError(
            f"{settings_file} lacks 'model' or 'classification_heads', which our models have, and "
            "'model_type', which Hugging Face's have"
        )
    if settings.get("format") != FORMAT:
        raise UserError(
            f"{settings_file} has format {settings.get('format')}; this version reads {FORMAT}"
        )
    return settings


def _as_float32(file: Path, name: str, saved: Mapping[str, flat.Array]) -> flat.Array:
    """An array whose values float32 holds exactly; training in another type would lose updates."""
    array = saved[name]
    if array.dtype not in (np.float32, np.float16, jnp.bfloat16):
        raise UserError(
            f"{file}: {name} is {array.dtype}; a model has float32, float16 or bfloat16 arrays"
        )
    return array.astype(np.float32, copy=False)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))

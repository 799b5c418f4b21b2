"""The exported format: a folder with weights, config and tokenizer.

model.safetensors   the parameters, by dotted path
config.json         the model config, the classification heads and the metadata; of ELECTRA also
                    the config of the generator, whose arrays begin with "generator."
vocabulary.model    the SentencePiece tokenizer; or vocabulary.json, that of an imported model
README.md           the model card
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from tupe_jax.config.schema import ModelConfig
from tupe_jax.config.validation import from_mapping
from tupe_jax.model.electra import own_paths
from tupe_jax.model.params import Array, ParamArrays, classification_heads_in, param_shapes
from tupe_jax.model.params import Path as ParamPath
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import local_file
from tupe_jax.utils.object_storage import check_reachable, upload
from tupe_jax.utils.paths import Path, is_object, storage_path

FORMAT = 1
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
GENERATOR = "generator"
SENTENCEPIECE_TOKENIZER, IMPORTED_TOKENIZER = "vocabulary.model", "vocabulary.json"


@dataclass(frozen=True)
class HeadMetadata:
    """What a classification head reads and predicts."""

    classes: tuple[str, ...] = ()
    """The name of each class; empty if the head predicts a score."""
    score_scale: float = 1.0
    """A score is the head's output times this."""
    texts: int | None = None
    """1, or 2 for pairs of texts; None if unknown."""
    length: int = 512
    """Longest input in tokens; longer ones are truncated, as in fine-tuning."""
    trial: Mapping[str, Any] = field(default_factory=dict)
    """The fine-tuning run and its scores, for the model card."""


@dataclass(frozen=True)
class ModelMetadata:
    """Optional information about a model, for its users and its model card."""

    step: int | None = None
    """The number of pre-training steps."""
    length: int | None = None
    """Tokens in a sequence of pre-training."""
    heads: Mapping[str, HeadMetadata] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    """The pre-training config and its validation loss, for the model card."""
    origin: str = ""
    """Where an imported model came from."""


NO_METADATA = ModelMetadata()

Generator = tuple[ModelConfig, ParamArrays]
"""ELECTRA's generator; a folder has the arrays that it shares with the discriminator once."""


def write_folder(
    folder: str | os.PathLike[str],
    config: ModelConfig,
    params: ParamArrays,
    *,
    tokenizer: bytes | None = None,
    metadata: ModelMetadata = NO_METADATA,
    generator: Generator | None = None,
    card: str | None = None,
) -> None:
    """Write a model to a folder that must not exist yet, all of it or nothing.

    `tokenizer` is the content of a tokenizer's file.
    """
    settings = {
        "format": FORMAT,
        "model": dataclasses.asdict(config),
        "classification_heads": classification_heads_in(params),
        "facts": dataclasses.asdict(metadata),
    }
    arrays = {".".join(path): array for path, array in params.items()}
    if generator is not None:
        generator_config, generator_params = generator
        settings[GENERATOR] = dataclasses.asdict(generator_config)
        names = _generator_names(generator_config, config)
        arrays |= {name: generator_params[path] for path, name in names.items()}
    with new_folder(folder) as unfinished:
        safetensors.numpy.save_file(arrays, unfinished / WEIGHTS)
        (unfinished / CONFIG).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        if tokenizer is not None:
            (unfinished / tokenizer_file_name(tokenizer)).write_bytes(tokenizer)
        if card is not None:
            (unfinished / CARD).write_text(card, encoding="utf-8")


def read_folder(
    folder: str | os.PathLike[str],
) -> tuple[ModelConfig, ParamArrays, ModelMetadata, Generator | None]:
    """Read what `write_folder` wrote, bit for bit; the parameters are float32.

    Arrays that were converted to float16 or bfloat16 afterwards are converted back.
    """
    config_file, weights_file = _require(folder, CONFIG), _require(folder, WEIGHTS)
    settings = _read_settings(config_file)
    try:
        with local_file(weights_file) as file:
            arrays = safetensors.numpy.load_file(file)
    except safetensors.SafetensorError as error:
        raise UserError(f"{weights_file} is damaged: {error}") from error
    config = from_mapping(ModelConfig, settings["model"], f"{config_file}: model")
    shapes = param_shapes(config, settings["classification_heads"])
    names = {path: ".".join(path) for path in shapes}
    expected = {names[path]: shape for path, shape in shapes.items()}
    generator: ModelConfig | None = None
    if GENERATOR in settings:
        generator = from_mapping(ModelConfig, settings[GENERATOR], f"{config_file}: {GENERATOR}")
        generator_shapes = param_shapes(generator, {})
        generator_names = _generator_names(generator, config)
        expected |= {generator_names[path]: shape for path, shape in generator_shapes.items()}
    _check_shapes(weights_file, arrays, expected)

    def read(names: Mapping[ParamPath, str]) -> ParamArrays:
        return {path: _as_float32(weights_file, name, arrays) for path, name in names.items()}

    return (
        config,
        read(names),
        _metadata(config_file, settings.get("facts", {})),
        None if generator is None else (generator, read(generator_names)),
    )


def _generator_names(generator: ModelConfig, discriminator: ModelConfig) -> dict[ParamPath, str]:
    """The names of the generator's arrays; those that it shares are the discriminator's."""
    own = own_paths(generator, discriminator)
    paths = param_shapes(generator, {})
    return {path: ".".join((GENERATOR, *path) if path in own else path) for path in paths}


def find_tokenizer(folder: Path) -> Path | None:
    """The tokenizer's file in a model folder, if it has one."""
    files = (folder / name for name in (SENTENCEPIECE_TOKENIZER, IMPORTED_TOKENIZER))
    return next((file for file in files if file.exists()), None)


def tokenizer_file_name(content: bytes) -> str:
    """The file name for a tokenizer: an imported one is JSON, a SentencePiece model is binary."""
    return IMPORTED_TOKENIZER if content.startswith(b"{") else SENTENCEPIECE_TOKENIZER


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A temporary folder that is renamed to `folder`, or uploaded, at the end.

    On an error it is removed. On object storage the config is uploaded last: a folder without one
    is no model.
    """
    target = storage_path(folder)
    check_reachable(target)
    if target.exists():
        raise UserError(f"{target} exists already; choose another folder or remove it")
    if is_object(target):
        with tempfile.TemporaryDirectory() as temporary:
            written = pathlib.Path(temporary)
            yield written
            files = [file for file in written.rglob("*") if file.is_file()]
            for file in sorted(files, key=lambda file: file == written / CONFIG):
                upload(file, target / file.relative_to(written))
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise UserError(f"cannot create {target.parent}: {error.strerror}") from error
    try:
        yield unfinished
        unfinished.chmod(0o755)  # mkdtemp lets only the owner read
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _metadata(config_file: Path, values: Mapping[str, Any]) -> ModelMetadata:
    """The metadata in config.json; folders of earlier versions have none."""
    heads = {
        name: from_mapping(HeadMetadata, head, f"{config_file}: facts.heads.{name}")
        for name, head in values.get("heads", {}).items()
    }
    others = {name: value for name, value in values.items() if name != "heads"}
    metadata = from_mapping(ModelMetadata, others, f"{config_file}: facts")
    return dataclasses.replace(metadata, heads=heads)


def _require(folder: str | os.PathLike[str], name: str) -> Path:
    file = storage_path(folder) / name
    if not file.is_file():
        raise UserError(f"{folder} is not a model folder: it has no {name}")
    return file


def _read_settings(config_file: Path) -> dict[str, Any]:
    try:
        settings = json.loads(config_file.read_text())
    except json.JSONDecodeError as error:
        raise UserError(
            f"{config_file} is not valid JSON, line {error.lineno}: {error.msg}"
        ) from error
    if not isinstance(settings, dict) or not {"model", "classification_heads"} <= settings.keys():
        raise UserError(
            f"{config_file} lacks 'model' or 'classification_heads', which a model folder of "
            "tupe_jax has, and 'model_type', which one of Hugging Face has"
        )
    if settings.get("format") != FORMAT:
        raise UserError(
            f"{config_file} has format {settings.get('format')}; this version reads {FORMAT}"
        )
    return settings


def _check_shapes(
    file: Path, arrays: Mapping[str, Array], expected: Mapping[str, tuple[int, ...]]
) -> None:
    for name in sorted(expected.keys() | arrays.keys()):
        found = arrays[name].shape if name in arrays else None
        if found != expected.get(name):
            raise UserError(
                f"{file}: {name} is {_shape(found)}, but {CONFIG} requires "
                f"{_shape(expected.get(name))}"
            )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))


def _as_float32(file: Path, name: str, arrays: Mapping[str, Array]) -> Array:
    """An array whose values float32 holds exactly: training in another type loses updates."""
    array = arrays[name]
    if array.dtype not in (np.float32, np.float16, jnp.bfloat16):
        raise UserError(f"{file}: {name} is {array.dtype}; expected float32, float16 or bfloat16")
    return array.astype(np.float32, copy=False)

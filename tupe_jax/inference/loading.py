"""Load a trained model from a checkpoint or a model folder: `tupe_jax.load(path)`."""

import logging
import os

from tupe_jax.config.schema import Config
from tupe_jax.config.validation import from_mapping
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.interop import model_folder
from tupe_jax.interop.fairseq_checkpoint import CHECKPOINT
from tupe_jax.interop.hugging_face import files, importing
from tupe_jax.interop.model_folder import Generator, ModelMetadata
from tupe_jax.model.params import arrays_of
from tupe_jax.objectives.registry import exported_models
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.hugging_face import HuggingFaceTokenizer
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.accelerators import skip_absent_tpu
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.object_storage import check_reachable
from tupe_jax.utils.paths import Path, absolute, glob_in, storage_path

logger = logging.getLogger(__name__)

MODEL_FOLDER = "model"
"""The model folder inside the folder of a fine-tuning trial."""


def load(
    path: str | os.PathLike[str], vocabulary: str | os.PathLike[str] | None = None
) -> TrainedModel:
    """Load the model in a work directory, a checkpoint, a model folder or a fine-tuning run.

    A model folder is one that was exported or imported, or one in Hugging Face's layout.

    `vocabulary` is a SentencePiece file for a model folder without a tokenizer. A model without a
    tokenizer has a `module` and a `position_bias`, but reads no texts. The official checkpoints
    are such models: their tokenizer is not available here.
    """
    skip_absent_tpu()
    if not os.fspath(path):
        raise UserError("an empty path; give the folder of a model")
    found = _expand_home(path)
    check_reachable(found)
    if not found.exists():
        raise UserError(f"{path}: no such folder; train a model with `tupe pretrain`")
    if found.is_file():
        raise _released(found) or UserError(f"{path} is a file; give the folder it is in")
    if files.read_config(found) is not None:
        _refuse_second_tokenizer(path, vocabulary)
        model, unused = load_hugging_face(found)
        if unused:
            logger.warning("%s: left out %s", path, ", ".join(unused))
        return model
    folder = _find_model_folder(found)
    if folder is not None:
        return _load_folder(path, folder, vocabulary)
    released = _released(found / CHECKPOINT)
    if released is not None:
        raise released
    _refuse_second_tokenizer(path, vocabulary)
    return _load_checkpoint(path, found)


def load_hugging_face(
    folder: Path, generator_folder: Path | None = None
) -> tuple[TrainedModel, list[str]]:
    """The model in a folder of Hugging Face's layout, and the names of the arrays it leaves out.

    A discriminator of ELECTRA may come with its generator, which has a folder of its own.
    """
    config, params, tokenizer, unused = importing.read_folder(folder)
    model_type = files.require_config(folder)["model_type"]
    metadata = ModelMetadata(origin=f"{absolute(folder).name}, a model of type {model_type}")
    generator: Generator | None = None
    if generator_folder is not None:
        generator_config, generator_params, _, others = importing.read_folder(generator_folder)
        importing.check_pair(config, params, generator_config, generator_params)
        generator = generator_config, generator_params
        unused = [*unused, *(f"generator: {name}" for name in others)]
    return TrainedModel(folder, config, params, tokenizer, metadata, generator), unused


def load_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer in a file of a model folder, or in a SentencePiece file."""
    if file.name == model_folder.IMPORTED_TOKENIZER:
        return HuggingFaceTokenizer.parse(file.read_bytes(), file)
    return SentencePieceTokenizer.load(file)


def _load_checkpoint(path: str | os.PathLike[str], found: Path) -> TrainedModel:
    # Imported here because exported models must load without Orbax.
    from tupe_jax.checkpointing.manager import load_for_use

    metadata, tokenizer, params = load_for_use(found)
    if "model" not in metadata.config:
        raise UserError(f"{path} is an unfinished fine-tuning run; it has no model yet")
    exported = exported_models(from_mapping(Config, metadata.config, f"{path}: config"), params)
    generator = exported.generator
    return TrainedModel(
        path,
        exported.model.config,
        arrays_of(exported.model),
        SentencePieceTokenizer.parse(tokenizer, found),
        ModelMetadata(
            step=metadata.step,
            length=metadata.config["data"]["length"],
            run={"config": metadata.config, "valid_loss": metadata.valid_loss},
        ),
        None if generator is None else (generator.config, arrays_of(generator)),
    )


def _load_folder(
    path: str | os.PathLike[str], folder: Path, vocabulary: str | os.PathLike[str] | None
) -> TrainedModel:
    file = model_folder.find_tokenizer(folder)
    if file is not None:
        _refuse_second_tokenizer(folder, vocabulary)
    elif vocabulary is not None:
        file = _expand_home(vocabulary)
    tokenizer = None if file is None else load_tokenizer(file)
    config, params, metadata, generator = model_folder.read_folder(folder)
    return TrainedModel(path, config, params, tokenizer, metadata, generator)


def _find_model_folder(path: Path) -> Path | None:
    """The model folder that a path stands for: itself, a trial's, or that of the only trial."""
    trials = [file.parent for file in glob_in(path, f"*/{MODEL_FOLDER}/{model_folder.CONFIG}")]
    candidates = [path, path / MODEL_FOLDER] + (trials if len(trials) == 1 else [])
    for candidate in candidates:
        is_hugging_face = files.read_config(candidate) is not None
        if (candidate / model_folder.WEIGHTS).exists() and not is_hugging_face:
            return candidate
    if trials:
        names = ", ".join(sorted(trial.parent.name for trial in trials))
        raise UserError(f"{path} holds several fine-tuned models: give one of its folders, {names}")
    return None


def _expand_home(path: str | os.PathLike[str]) -> Path:
    # Not `Path.expanduser`, which fails for an unknown user.
    return storage_path(os.path.expanduser(path))


def _released(file: Path) -> UserError | None:
    """The error for a checkpoint of the official code, which has to be imported first."""
    if file.suffix not in (".pt", ".npz") or not file.is_file():
        return None
    return UserError(
        f"{file} is in the released format; convert it with `tupe import-fairseq {file} FOLDER`"
    )


def _refuse_second_tokenizer(
    path: str | os.PathLike[str], vocabulary: str | os.PathLike[str] | None
) -> None:
    if vocabulary is not None:
        raise UserError(f"{path} has its own tokenizer; leave out --vocabulary={vocabulary}")

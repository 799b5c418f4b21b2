"""A trained model to build on, from wherever one is kept: weights, settings and vocabulary."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.checkpointing.checksum import fingerprints
from tupe_jax.config.schema import ModelConfig
from tupe_jax.config.validation import from_mapping
from tupe_jax.interop import model_folder as folder
from tupe_jax.interop.checkpoint_file import CHECKPOINT
from tupe_jax.interop.hugging_face import importing as hugging_face
from tupe_jax.model import params as flat
from tupe_jax.model.heads import MaskedLM
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.hugging_face import HuggingFaceTokenizer
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError

MODEL_FOLDER = "model"
"""Where a finished fine-tuning has its model."""


@dataclass(frozen=True)
class Pretrained:
    """A model in host memory, and the vocabulary it reads."""

    source: str
    """The path it was asked for by."""
    config: ModelConfig
    classification_heads: Mapping[str, int]
    """The number of outputs of each."""
    params: Mapping[flat.Path, flat.Array] = field(repr=False)
    known_vocabulary: Tokenizer | None
    """None: it can be looked at and exported, but reads no texts."""
    vocabulary_file: bytes | None = field(repr=False)
    step: int | None = None
    """Of pre-training, where it is known."""
    length: int | None = None
    """Tokens in a row of pre-training, where it is known."""
    heads: Mapping[str, folder.HeadFacts] = field(default_factory=dict)
    """What the classification heads say, where it is known."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """The config of pre-training and its validation loss, where they are known."""
    origin: str = ""
    """Where it came from, if it was not pre-trained here."""

    @classmethod
    def of(
        cls,
        model: MaskedLM,
        source: str | os.PathLike[str],
        vocabulary: tuple[Tokenizer, bytes] | None,
        facts: folder.Facts,
    ) -> "Pretrained":
        """A model with its vocabulary and that one's file, which must fit."""
        if vocabulary is not None:
            check_vocabulary(model.config, vocabulary[0])
        known, file = (None, None) if vocabulary is None else vocabulary
        return cls(
            source=str(source),
            config=model.config,
            classification_heads=flat.classification_heads_of(model),
            params=flat.arrays_of(model),
            known_vocabulary=known,
            vocabulary_file=file,
            step=facts.step,
            length=facts.length,
            heads=facts.heads,
            run=facts.run,
            origin=facts.origin,
        )

    @property
    def name(self) -> str:
        """What a person would call it: the last part of its path."""
        return Path(self.source).absolute().name

    @property
    def vocabulary(self) -> Tokenizer:
        if self.known_vocabulary is None:
            raise no_tokenizer(self.source)
        return self.known_vocabulary

    @property
    def ordinary_ids(self) -> NDArray[np.int32]:
        """Pieces to probe with; without a vocabulary all but padding."""
        if self.known_vocabulary is None:
            return np.delete(np.arange(self.config.vocab_size, dtype=np.int32), self.config.pad_id)
        return self.known_vocabulary.ordinary_ids

    @property
    def fingerprint(self) -> int:
        """32 bits that tell these weights from all others."""
        marks = fingerprints({".".join(path): array for path, array in self.params.items()})
        return sum(marks.values()) % 2**32

    @property
    def facts(self) -> folder.Facts:
        return folder.Facts(self.step, self.length, self.heads, self.run, self.origin)

    def model(self) -> MaskedLM:
        return flat.model_from(self.config, self.classification_heads, lambda _: self.params)

    def exact_model(self) -> MaskedLM:
        """In bfloat16 what should be equal differs by more than what is to be measured.

        The functions that measure it also ask for exact float32 products, by
        `tupe_jax.model.full_precision`.
        """
        return replace(self, config=replace(self.config, dtype="float32")).model()


def load_pretrained(
    path: str | os.PathLike[str], vocabulary: str | os.PathLike[str] | None = None
) -> Pretrained:
    """The model in a work directory, a checkpoint, a model folder, or a finished fine-tuning.

    A model folder may be one of Hugging Face's, see `tupe_jax.interop.hugging_face`.

    `vocabulary` is a SentencePiece file for a model folder that has none, and may be missing; what
    a checkpoint holds cannot be replaced: other pieces would have the vectors of these.
    """
    if not os.fspath(path):
        raise UserError("an empty path; give the folder of a model")
    found = _from_home(path)
    if not found.exists():
        raise UserError(f"{path}: no such folder; `tupe pretrain` makes a model")
    if found.is_file():
        raise _released(found) or UserError(f"{path} is a file; give the folder it is in")
    if hugging_face.is_one(found):
        _refuse(vocabulary, path)
        imported = hugging_face.from_folder(found)
        if imported.left_out:
            print(f"{path}: left out {', '.join(imported.left_out)}", file=sys.stderr)
        return of_import(imported, found)
    model_folder = find_model_folder(found)
    if model_folder is not None:
        return _from_folder(model_folder, vocabulary)
    released = _released(found / CHECKPOINT)
    if released is not None:
        raise released
    _refuse(vocabulary, path)
    # A model folder is to be read where there is no Orbax.
    from tupe_jax.checkpointing.manager import load_for_use

    saved = load_for_use(found)
    if "model" not in saved.config:
        raise UserError(f"{path} is a fine-tuning under way; when it is finished, it has a model")
    config = from_mapping(ModelConfig, saved.config["model"], f"{path}: model")
    known = SentencePieceTokenizer.parse(saved.vocabulary, found)
    check_vocabulary(config, known)
    return Pretrained(
        source=str(path),
        config=config,
        classification_heads={},
        params=saved.params,
        known_vocabulary=known,
        vocabulary_file=saved.vocabulary,
        step=saved.step,
        length=saved.config["data"]["length"],
        run={"config": saved.config, "valid_loss": saved.valid_loss},
    )


def _from_home(path: str | os.PathLike[str]) -> Path:
    # Not `Path.expanduser`, which fails where nobody has the name.
    return Path(os.path.expanduser(path))


def _released(file: Path) -> UserError | None:
    """What to say of a file that can be imported, but is no model folder."""
    if file.suffix not in (".pt", ".npz") or not file.is_file():
        return None
    return UserError(
        f"{file} is in the released format; `tupe import-fairseq {file} FOLDER` makes a model of it"
    )


def find_model_folder(path: Path) -> Path | None:
    """The folder of safetensors that a path stands for, if it does; not one of Hugging Face's."""
    trials = [file.parent for file in path.glob(f"*/{MODEL_FOLDER}/{folder.SETTINGS}")]
    candidates = [path, path / MODEL_FOLDER] + (trials if len(trials) == 1 else [])
    for candidate in candidates:
        if (candidate / folder.WEIGHTS).exists() and not hugging_face.is_one(candidate):
            return candidate
    if trials:
        names = ", ".join(sorted(trial.parent.name for trial in trials))
        raise UserError(f"{path} holds several fine-tuned models: give one of its folders, {names}")
    return None


def _from_folder(path: Path, given: str | os.PathLike[str] | None) -> Pretrained:
    own = folder.find_vocabulary(path)
    if own is not None:
        _refuse(given, path)
    file = own if given is None else _from_home(given)
    vocabulary = None if file is None else read_tokenizer(file)
    return Pretrained.of(folder.load_folder(path), path, vocabulary, folder.load_facts(path))


def read_tokenizer(file: Path) -> tuple[Tokenizer, bytes]:
    """The vocabulary in a file, and the file's content."""
    if file.name == folder.IMPORTED_VOCABULARY:
        content = file.read_bytes()
        return HuggingFaceTokenizer.parse(content, file), content
    return SentencePieceTokenizer.load(file), file.read_bytes()


def of_import(imported: hugging_face.Imported, path: Path) -> Pretrained:
    """A public encoder, as one of ours."""
    origin = f"{path.absolute().name}, a model of type {imported.model_type}"
    vocabulary = imported.vocabulary, imported.vocabulary_file
    return Pretrained.of(imported.model, path, vocabulary, folder.Facts(origin=origin))


def _refuse(vocabulary: str | os.PathLike[str] | None, path: str | os.PathLike[str]) -> None:
    if vocabulary is not None:
        raise UserError(f"{path} has its own vocabulary; leave out --vocabulary={vocabulary}")


def check_vocabulary(config: ModelConfig, vocabulary: Tokenizer) -> None:
    """Refuse a vocabulary that the model was not trained with, as far as that can be seen."""
    pad_id = vocabulary.special.pad_id
    if vocabulary.size != config.vocab_size:
        raise UserError(
            f"{vocabulary.path}: a vocabulary of {vocabulary.size} pieces, but the model has "
            f"{config.vocab_size}; it was trained with another one"
        )
    if config.pad_id != pad_id:
        raise UserError(
            f"the model pads with token {config.pad_id}, but [PAD] is {pad_id} in "
            f"{vocabulary.path}: its pieces are numbered in another way"
        )
    if config.cls_last != vocabulary.cls_last:
        ends = {True: "ends rows with", False: "begins rows with"}
        raise UserError(
            f"the model {ends[config.cls_last]} [CLS], but {vocabulary.path} "
            f"{ends[vocabulary.cls_last]} it"
        )


def no_tokenizer(name: str) -> UserError:
    """What to say when texts are to be read and cannot be."""
    return UserError(
        f"{name} has no vocabulary and reads no texts; if there is a SentencePiece file that its "
        "pieces are numbered by, give it as --vocabulary=FILE (in Python vocabulary=FILE)"
    )

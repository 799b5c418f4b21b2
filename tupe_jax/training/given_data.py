"""The data that a config names: checked before anything is made or trained."""

import hashlib
from pathlib import Path

from tupe_jax.config.schema import Config
from tupe_jax.data.pretraining.token_shards import (
    PreparedIndex,
    check_tokenizer_file,
    parse_index,
    require_tokenizer,
)
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError


def check_given_data(config: Config, *, resumes: bool) -> None:
    """Fail unless `data.prepared` and `data.vocabulary` fit each other and the other settings.

    A run that `resumes` may take from its work directory a vocabulary that is missing here.
    """
    given = config.data.vocabulary
    if config.data.prepared:
        folder = Path(config.data.prepared)
        index = parse_index(folder)
        check_index(config, folder, index)
        if not given:
            check_tokenizer_file(folder, index)
        if not (given or index.tokenizer or resumes):
            raise no_tokenizer(config)
    if given and (Path(given).exists() or not resumes):
        require_fitting_vocabulary(config, SentencePieceTokenizer.load(given))


def no_tokenizer(config: Config) -> UserError:
    return UserError(
        f"{config.data.prepared} was prepared by an older version and holds no tokenizer; set "
        "data.vocabulary to the file that `tupe prepare` was given"
    )


def require_fitting_vocabulary(config: Config, vocabulary: SentencePieceTokenizer) -> None:
    """Fail unless a vocabulary has the model's size and is that of `data.prepared`."""
    _check_size(config, vocabulary.path, vocabulary.size)
    if config.data.prepared:
        folder = Path(config.data.prepared)
        require_tokenizer(folder, parse_index(folder), vocabulary.sha256)


def check_checkpoint_vocabulary(config: Config, saved_vocabulary: bytes) -> None:
    """Fail unless a checkpoint to resume from has the vocabulary of `data.prepared`."""
    if not config.data.prepared:
        return
    here = parse_index(Path(config.data.prepared)).vocabulary_sha256
    saved = hashlib.sha256(saved_vocabulary).hexdigest()
    if here != saved:
        raise UserError(
            f"data.prepared={config.data.prepared} was made with vocabulary {here[:12]}, but the "
            f"checkpoint has {saved[:12]}; resume with the data that the run began with"
        )


def given_vocabulary(config: Config) -> Path | None:
    """Return the vocabulary file that the config names, or that of the folder it names."""
    if config.data.vocabulary:
        return Path(config.data.vocabulary)
    if not config.data.prepared:
        return None
    folder = Path(config.data.prepared)
    tokenizer = parse_index(folder).tokenizer
    return folder / tokenizer if tokenizer else None


def check_index(config: Config, folder: Path, index: PreparedIndex) -> None:
    """Fail unless prepared rows have the length, packing and vocabulary size of the config."""
    data = config.data
    if index.length != data.length:
        raise UserError(
            f"{folder} has rows of {index.length} tokens, but data.length={data.length}; "
            f"set data.length={index.length}, or prepare other rows"
        )
    if index.packing != data.packing:
        raise UserError(
            f"{folder} was prepared with --packing={index.packing}, but data.packing="
            f"{data.packing}; set data.packing={index.packing}, or prepare other rows"
        )
    _check_size(config, folder, index.vocab_size)


def _check_size(config: Config, where: Path, size: int) -> None:
    if size != config.model.vocab_size:
        raise UserError(
            f"{where}: the vocabulary has {size} pieces, but model.vocab_size="
            f"{config.model.vocab_size}; set model.vocab_size={size}"
        )

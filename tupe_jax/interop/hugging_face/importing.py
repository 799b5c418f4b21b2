"""A checkpoint of a public encoder as our model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tupe_jax.config.validation import one_of
from tupe_jax.interop.hugging_face import files, names, pieces
from tupe_jax.interop.hugging_face.settings import Found, Settings, model_config, naming
from tupe_jax.interop.hugging_face.tokenizer import read_tokenizer
from tupe_jax.interop.model_folder import VOCABULARY
from tupe_jax.interop.param_mapping import check_names, reader
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import Array, model_from
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError

NAMES: Mapping[str, names.Names] = {
    "bert": names.BERT,
    "roberta": names.ROBERTA,
    "electra": names.ELECTRA,
    "albert": names.ALBERT,
    "mpnet": names.MPNET,
    "deberta": names.DEBERTA,
    "deberta-v2": names.DEBERTA,
    "xlnet": names.XLNET,
}

CUT_IN_ANOTHER_WAY = {
    "roberta": pieces.roberta,
    "deberta": pieces.deberta,
    "deberta-v2": pieces.deberta_v2,
    "xlnet": pieces.xlnet,
}


@dataclass(frozen=True)
class Imported:
    """A model with its vocabulary."""

    model_type: str
    model: MaskedLM
    vocabulary: Tokenizer
    vocabulary_file: bytes
    left_out: Sequence[str]
    """Arrays that our model has no place for."""


def is_one(folder: Path) -> bool:
    """Whether a folder has Hugging Face's layout, of whichever model."""
    return files.read_config(folder) is not None


def from_folder(folder: Path) -> Imported:
    """The model and the tokenizer in a folder of Hugging Face's layout."""
    config = files.require_config(folder)
    source = f"{folder / files.SETTINGS}"
    kind = one_of(str(config["model_type"]), NAMES, f"model_type in {source}")
    size = Settings(config, source).size("vocab_size")
    vocabulary, vocabulary_file = _vocabulary(folder, kind, size)
    state = files.read_arrays(folder)
    model = from_state_dict(config, state, sep_id=vocabulary.special.sep_id, source=source)
    left_out = sorted(n for n in state if names.is_unused(NAMES[kind], model.config, n))
    return Imported(kind, model, vocabulary, vocabulary_file, left_out)


def _vocabulary(folder: Path, kind: str, size: int) -> tuple[Tokenizer, bytes]:
    """The tokenizer; or a vocabulary of ours, beside what we exported."""
    own = folder / VOCABULARY
    if own.exists():
        return SentencePieceTokenizer.load(own), own.read_bytes()
    vocabulary = read_tokenizer(folder, kind, size)
    return vocabulary, vocabulary.content


def from_state_dict(
    config: Mapping[str, Any],
    state: Mapping[str, Array],
    *,
    sep_id: int,
    source: str = "config.json",
) -> MaskedLM:
    """The model that `config` (of a `config.json`) and its arrays describe.

    The pooler and the head for masked words are there if the checkpoint has them; heads of other
    objectives and tasks are left out. A missing, unknown or misshapen array is an error.
    """
    kind = one_of(str(config.get("model_type")), NAMES, f"model_type in {source}")
    with naming(source):
        return _model(kind, Settings(config, source), state, sep_id)


def _model(kind: str, settings: Settings, state: Mapping[str, Array], sep_id: int) -> MaskedLM:
    table = NAMES[kind]
    state = _usual_names(state, table)
    found = Found(
        pooler=f"{table.pooler}.weight" in state,
        masked_word_head=f"{table.head_dense}.weight" in state,
        sep_id=sep_id,
        no_segments=kind == "bert" and _adds_nothing(state.get(names.SEGMENTS)),
    )
    if found.no_segments:
        del state[names.SEGMENTS]
    ours = model_config(kind, settings, found)
    state = {n: array for n, array in state.items() if not names.is_unused(table, ours, n)}
    if kind in CUT_IN_ANOTHER_WAY:
        try:
            state = CUT_IN_ANOTHER_WAY[kind](state, settings, ours)
        except KeyError as error:
            raise UserError(f"the checkpoint lacks {error.args[0]}") from None
    if table.positions in state:
        # RoBERTa's first rows are of no position: padding has one, and what it is counted from.
        offset = settings.number("max_position_embeddings", 512) - ours.position.max_length
        state[table.positions] = state[table.positions][offset:]
    places = list(names.places(table, ours))
    check_names(state, places)
    return model_from(ours, {}, reader(places, state))


def _adds_nothing(segments_NxD: Array | None) -> bool:
    """Whether there is one segment of zeros: so we export a model without any."""
    return segments_NxD is not None and len(segments_NxD) == 1 and not segments_NxD.any()


def _usual_names(state: Mapping[str, Array], table: names.Names) -> dict[str, Array]:
    """Names as of today, without the prefix a model with a head has, nor copies of tied arrays."""
    renamed = {}
    for name, array in state.items():
        name = name.removeprefix(table.prefix)
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")  # checkpoints before 2019
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        renamed[name] = np.asarray(array, np.float32)
    for copy, original in table.head_copies.items():
        if copy not in renamed:
            continue
        renamed.setdefault(original, renamed[copy])
        if not np.array_equal(renamed.pop(copy), renamed[original]):
            raise UserError(f"{copy} differs from {original}; the model has only one of them")
    if table.words not in renamed:
        raise UserError(f"the checkpoint has no array {table.words}: it is not of this model_type")
    return renamed

"""What a prepared folder holds, and what usually goes wrong with one."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from tupe_jax.data.pretraining.readers import TokenShards
from tupe_jax.data.pretraining.token_shards import (
    IS_RANDOM_NEXT,
    TOKENS,
    PreparedIndex,
    SourceCounts,
    Split,
    check_tokenizer_file,
    examples_of,
    read_index,
    require_tokenizer,
)
from tupe_jax.tokenizers.sentencepiece import (
    CLS_ID,
    PAD_ID,
    SEP_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    SentencePieceTokenizer,
)
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path

LEAST_SAMPLE = 4_096
"""Sequences; more for a large tokenizer."""

# Above or below these shares a warning is printed.
MANY_UNKNOWN = 0.01
MUCH_PADDING = 0.2
MOSTLY_ONE_SOURCE = 0.9
MANY_BROKEN = 0.01
FEW_TOKENS_USED = 0.5
# Fewer make a noisy validation loss.
FEW_VALIDATION_SEQUENCES = 100
# If each token occurred equally often, a sample with so many tokens per token of the tokenizer
# would hold them all.
_ENOUGH_PER_TOKEN = 50


@dataclass(frozen=True)
class SampleStatistics:
    """What is measured on training sequences that are spread over all shards."""

    sequences: int
    tokens: int
    """Without [CLS], [SEP] and [PAD]."""
    unknown: float
    """The share of [UNK] in `tokens`."""
    used: float
    """The share of the tokenizer's tokens that occur."""
    characters_per_token: float | None
    """None without a tokenizer."""
    decoded: tuple[str, ...]
    """A few sequences as text."""


@dataclass(frozen=True)
class DataCard:
    """A prepared folder, described for people."""

    index: PreparedIndex
    tokenizer: str
    """The name of the file; empty if there is none that made the ids."""
    sample: SampleStatistics
    warnings: tuple[str, ...]


def describe(folder: Path, vocabulary: Path | None = None, shown: int = 3) -> DataCard:
    """Describe a prepared folder, with `shown` of its sequences.

    `vocabulary` is the tokenizer of a folder of an older version, which has no copy.
    """
    index = read_index(folder)
    tokenizer = None
    warnings = []
    try:
        tokenizer = _tokenizer(folder, index, vocabulary)
    except UserError as error:
        warnings.append(str(error))
    if tokenizer is None and not warnings:
        warnings.append(
            "the folder was prepared by an older version and holds no tokenizer; give its file "
            "with --vocabulary, and to `tupe pretrain` with --config.data.vocabulary"
        )
    sample = _measure(folder, index, tokenizer, shown)
    name = tokenizer.path.name if tokenizer else ""
    return DataCard(index, name, sample, (*warnings, *_warnings(index, sample)))


def padding(split: Split, length: int) -> float:
    """Return the share of [PAD] in a split."""
    return 1 - split.tokens / (split.rows * length) if split.rows else 0.0


def _tokenizer(
    folder: Path, index: PreparedIndex, given: Path | None
) -> SentencePieceTokenizer | None:
    """Return the tokenizer that made the ids, if it is there."""
    if given is not None:
        tokenizer = SentencePieceTokenizer.load(given)
        require_tokenizer(folder, index, tokenizer.sha256)
        return tokenizer
    if index.tokenizer is None:
        return None
    check_tokenizer_file(folder, index)
    return SentencePieceTokenizer.load(folder / index.tokenizer)


def _measure(
    folder: Path, index: PreparedIndex, tokenizer: SentencePieceTokenizer | None, shown: int
) -> SampleStatistics:
    shards = TokenShards(folder, index.splits["train"].shards, index.record)
    enough = math.ceil(_ENOUGH_PER_TOKEN * index.vocab_size / (index.length - 1))
    sample = shards.read(shards.spread(max(LEAST_SAMPLE, enough)).tolist())
    ids_T = sample[TOKENS][~np.isin(sample[TOKENS], (PAD_ID, CLS_ID, SEP_ID))]
    known_T = ids_T[ids_T != UNK_ID]
    count = max(len(ids_T), 1)
    decoded: list[str] = []
    characters = None
    if tokenizer is not None:
        lengths = np.array([_characters(tokenizer, id) for id in range(tokenizer.size)])
        characters = float(lengths[ids_T].sum() / count)
        step = max(len(sample[TOKENS]) // shown, 1)
        some = {name: feature[::step][:shown] for name, feature in sample.items()}
        decoded = [_as_text(example, tokenizer) for example in examples_of(some)]
    return SampleStatistics(
        sequences=len(sample[TOKENS]),
        tokens=len(ids_T),
        unknown=1 - len(known_T) / count,
        used=len(np.unique(known_T)) / max(index.vocab_size - len(SPECIAL_TOKENS), 1),
        characters_per_token=characters,
        decoded=tuple(decoded),
    )


def _characters(tokenizer: SentencePieceTokenizer, id: int) -> int:
    return 1 if id < len(SPECIAL_TOKENS) else len(tokenizer.token(id))


def _as_text(example: Mapping[str, Any], tokenizer: SentencePieceTokenizer) -> str:
    """Return a sequence as text, with its special tokens."""
    ids = [int(id) for id in example[TOKENS] if id != PAD_ID]
    parts: list[str] = []
    for is_special, some in groupby(ids, lambda id: id in (CLS_ID, SEP_ID)):
        run = list(some)
        parts += map(tokenizer.token, run) if is_special else [tokenizer.decode(run)]
    if missing := len(example[TOKENS]) - len(ids):
        parts.append(f"[PAD] x {missing}")
    if IS_RANDOM_NEXT in example:
        parts.append("(random next text)" if example[IS_RANDOM_NEXT] else "(next text)")
    return " ".join(parts)


def _warnings(index: PreparedIndex, sample: SampleStatistics) -> Iterator[str]:
    train, validation = index.splits["train"], index.splits["validation"]
    if sample.unknown > MANY_UNKNOWN:
        yield (
            f"{percent(sample.unknown)} of the tokens are [UNK]: the tokenizer lacks characters of "
            "this text; train one on the same task with `tupe vocab`"
        )
    enough = sample.tokens >= _ENOUGH_PER_TOKEN * index.vocab_size
    if enough and sample.used < FEW_TOKENS_USED:
        yield (
            f"only {percent(sample.used)} of the tokenizer's tokens occur in {sample.tokens:,} "
            "tokens: it was trained on other text, or is too large for this one; train one on the "
            "same task with `tupe vocab`"
        )
    share = padding(train, index.length)
    if share > MUCH_PADDING:
        shorter = (
            "a smaller --length, or --packing=stream, pads less"
            if index.packing != "stream"
            else "use fewer --shards"
        )
        yield f"{percent(share)} of the training sequences is padding; {shorter}"
    if not validation.rows:
        yield (
            "the validation split is empty: one document in 200 is held out; use more documents, "
            "or separate them (in text files by blank lines)"
        )
    elif validation.rows < FEW_VALIDATION_SEQUENCES:
        yield (
            f"the validation split has only {validation.rows:,} sequences, so its loss is noisy; "
            "use more text"
        )
    for source in index.sources:
        share = source.tokens / max(train.tokens, 1)
        if len(index.sources) > 1 and share > MOSTLY_ONE_SOURCE:
            yield (
                f"{percent(share)} of the tokens are from {source.source}; weights of the task, as "
                "in 'A + 4 * B', change that"
            )
        if source.broken > MANY_BROKEN * _records(source):
            yield (
                f"{source.broken:,} broken records or files of {source.source} were skipped, first "
                f"{source.first_broken}"
            )
        if source.damaged:
            yield (
                f"{source.damaged:,} damaged files or row groups of {source.source} were read only "
                "up to the damage, so an unknown number of records is missing: correct them or "
                "copy them again, and prepare again; of "
                f"{source.broken:,} broken records and files the first is {source.first_broken}"
            )


def _records(source: SourceCounts) -> float:
    """Return about how many records one pass over a source reads."""
    repeated = (source.documents + source.copies) / source.passes
    return source.broken + repeated + source.validation_documents / min(source.passes, 1)


def percent(share: float) -> str:
    """Return a share in percent, with enough digits to tell it from none."""
    return f"{100 * share:.1f} %" if share >= 0.001 or not share else f"{100 * share:.1g} %"

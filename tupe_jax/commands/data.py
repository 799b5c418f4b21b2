"""Describe a prepared folder: sources, sizes, tokenizer, sample sequences, and common mistakes.

  tupe data rows
  tupe data gs://tupe-runs/data --config=tupe_r:modern

With --config it also checks that the folder fits the config. [UNK] and other shares are measured on
4,096 training sequences, or more for a large tokenizer. Lines that begin with ! are warnings; they
do not change the exit code.
"""

import argparse
import textwrap
from typing import TYPE_CHECKING

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path, storage_path
from tupe_jax.utils.text import aligned_table, quantity

if TYPE_CHECKING:
    from tupe_jax.data.pretraining.data_card import DataCard

_WIDTH = 100
_CHARACTERS_SHOWN = 280


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=storage_path, help="a folder that `tupe prepare` wrote")
    parser.add_argument("--config", help="file or name, see `tupe pretrain --help`")
    parser.add_argument(
        "--vocabulary", type=storage_path, help="tokenizer of a folder that holds none"
    )


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.data.pretraining.data_card import describe

    card = describe(arguments.folder, arguments.vocabulary)
    warnings = list(card.warnings)
    if arguments.config:
        warnings += _misfits(arguments)
    print(_text(arguments.folder, card))
    for warning in warnings:
        print(_wrapped("! ", warning))


def _misfits(arguments: argparse.Namespace) -> list[str]:
    """Return why the folder does not fit the config, or nothing if it does."""
    from tupe_jax.config.loading import from_config_dict, load_config
    from tupe_jax.training.dataset import check_given_data

    given = [f"--config.data.prepared={arguments.folder}", "--config.data.reader=prepared"]
    if arguments.vocabulary:
        given.append(f"--config.data.vocabulary={arguments.vocabulary}")
    config = from_config_dict(load_config(arguments.config, [*arguments.overrides, *given]))
    try:
        check_given_data(config, resumes=False)
    except UserError as error:
        return [f"{arguments.config}: {error}"]
    return []


def _text(folder: Path, card: "DataCard") -> str:
    from tupe_jax.data.pretraining.data_card import padding, percent

    index, sample = card.index, card.sample
    facts = [
        ("task", index.task),
        ("sequences", f"{index.length:,} tokens, packing {index.packing}, {_disk_space(card)}"),
        (
            "tokenizer",
            f"{index.vocab_size:,} tokens, sha256 {index.vocabulary_sha256[:12]}"
            f"{', ' + card.tokenizer if card.tokenizer else ''}",
        ),
    ]
    measured = [f"{percent(sample.unknown)} [UNK]"]
    if sample.characters_per_token is not None:
        measured.append(f"{sample.characters_per_token:.2f} characters each")
    measured.append(f"{percent(sample.used)} of the tokenizer's occur")
    facts.append(("tokens", f"{', '.join(measured)} (in {quantity(sample.tokens)} sampled)"))
    width = max(len(name) for name, _ in facts)
    splits = [
        ["split", "sequences", "tokens", "documents", "padding", "shards"],
        *(
            [
                name,
                f"{split.rows:,}",
                quantity(split.tokens),
                f"{split.documents:,}",
                percent(padding(split, index.length)),
                f"{len(split.shards):,}",
            ]
            for name, split in index.splits.items()
        ),
    ]
    parts = [
        [str(folder), ""],
        [_wrapped(f"  {name:<{width}}  ", text) for name, text in facts],
        ["", *_indented(splits)],
        *([["", *_indented(_sources(card))]] if index.sources else []),
        [""] if sample.decoded else [],
        [
            _wrapped(f"  {number}  ", textwrap.shorten(text, _CHARACTERS_SHOWN, placeholder=" ..."))
            for number, text in enumerate(sample.decoded, start=1)
        ],
        [""],
    ]
    return "\n".join(line for part in parts for line in part)


def _sources(card: "DataCard") -> list[list[str]]:
    """Return a table of the sources, with columns about copies and broken records if any."""
    from tupe_jax.data.pretraining.data_card import percent

    sources = card.index.sources
    total = max(card.index.splits["train"].tokens, 1)
    rows = [
        ["source", "tokens", "share", "documents"],
        *(
            [
                each.source,
                quantity(each.tokens),
                percent(each.tokens / total),
                f"{each.documents:,}",
            ]
            for each in sources
        ),
    ]
    if any(each.compared for each in sources):
        rows[0].append("copies dropped")
        for row, each in zip(rows[1:], sources, strict=True):
            row.append(f"{each.copies:,} ({percent(each.copies / max(each.compared, 1))})")
    if any(each.broken for each in sources):
        rows[0].append("broken")
        for row, each in zip(rows[1:], sources, strict=True):
            row.append(f"{each.broken:,}")
    return rows


def _indented(rows: list[list[str]]) -> list[str]:
    return [f"  {line}" for line in aligned_table(rows, right=range(1, len(rows[0])))]


def _disk_space(card: "DataCard") -> str:
    size = sum(shard.bytes for split in card.index.splits.values() for shard in split.shards)
    return f"{quantity(size)}B on disk"


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(
        text,
        width=_WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )

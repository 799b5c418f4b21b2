"""Measure how a model uses positions and word order.

  tupe analyze runs/tupe_r                              the newest checkpoint of a work directory
  tupe analyze runs/tupe_r --length=64 --words=256      positions and probing words
  tupe analyze runs/tupe_r --pairs=blimp.jsonl.gz       minimal pairs in BLiMP's format
  tupe analyze runs/tupe_r bert-base-uncased albert     compare several models in a table
  tupe analyze runs/finetune-builtin_nli                also probes of word order
  tupe analyze runs/finetune-snli --snli=dev.jsonl.gz   the same with parsed pairs of SNLI

Prints a report and writes it to --out, with all numbers as JSON, one line per head as CSV, and the
matrices as plots. The report has position-only attention (from the bias, and from identical words),
locality, symmetry and other metrics, kinds of heads, BERT-A's four terms, the sensitivity to word
order, and minimal pairs (by default of the built-in grammar). For a model fine-tuned on NLI it also
has the predictions for pairs with shuffled constituents and exchanged roles; its minimal pairs mean
little, because fine-tuning moves the encoder away from the masked-LM head.

For several models it measures symmetry and locality only. A model may be a folder in Hugging Face's
layout. A model without a tokenizer, such as an imported official checkpoint, gets the measurements
that need no text.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tupe_jax.utils.errors import UserError, writing_failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tupe_jax.data.labelled.blimp_snli import MinimalPair
    from tupe_jax.inference.loading import Pretrained
    from tupe_jax.lab.nli_pairs import InferencePair

LONGEST = 128
WORDS = 64
BUILTIN_PAIRS = 500
BUILTIN_PROBE_PAIRS = 1500
"""In a tenth of them roles can be exchanged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        nargs="+",
        help="a work directory, a checkpoint, a model folder or a fine-tuning run",
    )
    parser.add_argument("--out", type=Path, default=Path("analysis"), help="default: analysis")
    parser.add_argument(
        "--length",
        type=int,
        help=f"positions without [CLS] (default: as in training, at most {LONGEST})",
    )
    parser.add_argument(
        "--words", type=int, default=WORDS, help=f"probing words (default: {WORDS})"
    )
    parser.add_argument("--pairs", type=Path, help="minimal pairs, a .jsonl or .jsonl.gz file")
    parser.add_argument(
        "--limit", type=int, default=100, help="pairs per paradigm of --pairs (default: 100)"
    )
    parser.add_argument(
        "--snli", type=Path, help="pairs to probe with, in the format of SNLI's .jsonl files"
    )
    parser.add_argument("--vocabulary", type=Path, help="tokenizer of a model folder without one")


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.inference.loading import load_pretrained, no_tokenizer
    from tupe_jax.lab.analysis import analyse
    from tupe_jax.lab.analysis_report import write_report

    if len(arguments.checkpoint) > 1:
        return _compare(arguments)
    (checkpoint,) = arguments.checkpoint
    pairs = _pairs(arguments)
    pretrained = load_pretrained(checkpoint, arguments.vocabulary)
    if pretrained.known_vocabulary is None and (arguments.pairs or arguments.snli):
        raise no_tokenizer(checkpoint)
    probe_pairs = _probe_pairs(arguments.snli, pretrained.classification_heads)
    _make(arguments.out)
    analysis = analyse(
        pretrained.exact_model(),
        pretrained.known_vocabulary,
        ordinary_ids=pretrained.ordinary_ids,
        length=_usual_length(pretrained) if arguments.length is None else arguments.length,
        words=arguments.words,
        pairs=pairs,
        probe_pairs=probe_pairs,
        head_lengths={head: facts.length for head, facts in pretrained.heads.items()},
    )
    step = "" if pretrained.step is None else f", step {pretrained.step}"
    probed = "" if arguments.snli is None else f", probed with {arguments.snli}"
    report, *others = write_report(analysis, f"{checkpoint}{step}{probed}", arguments.out)
    print(report.read_text(encoding="utf-8"))
    print(f"in {arguments.out}: {', '.join(path.name for path in (report, *others))}")


def _compare(arguments: argparse.Namespace) -> None:
    """Print a table of all checkpoints, measured at a length that all support."""
    import dataclasses
    import json

    from tupe_jax.inference.loading import load_pretrained
    from tupe_jax.lab.comparison import as_table, measure

    for name in ("pairs", "snli", "vocabulary"):
        if getattr(arguments, name) is not None:
            raise UserError(f"--{name} takes one model; give one checkpoint")
    pretrained = {path: load_pretrained(path) for path in arguments.checkpoint}
    shortest = min(_usual_length(one) for one in pretrained.values())
    settings = {
        "length": shortest if arguments.length is None else arguments.length,
        "words": arguments.words,
    }
    _make(arguments.out)
    lines = [
        measure(path, one.exact_model(), one.ordinary_ids, **settings)
        for path, one in pretrained.items()
    ]
    table = as_table(lines, **settings)
    (arguments.out / "comparison.txt").write_text(table + "\n", encoding="utf-8")
    values = {**settings, "models": [dataclasses.asdict(line) for line in lines]}
    (arguments.out / "comparison.json").write_text(json.dumps(values, indent=1) + "\n")
    print(table)
    print(f"in {arguments.out}: comparison.txt, comparison.json")


def _usual_length(pretrained: "Pretrained") -> int:
    """Positions of a training sequence without [CLS], as far as the model supports them."""
    from tupe_jax.model.positions import longest_input

    row = LONGEST + 1 if pretrained.length is None else pretrained.length
    return int(min(row - 1, LONGEST, longest_input(pretrained.config) - 1))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise writing_failed(f"cannot create {folder}: {error.strerror}", error) from None


def _pairs(arguments: argparse.Namespace) -> "list[MinimalPair]":
    """The first pairs of each paradigm in a file, or pairs of the built-in grammar."""
    from collections import Counter

    from tupe_jax.data.labelled.blimp_snli import read_minimal_pairs
    from tupe_jax.lab.minimal_pairs import builtin_minimal_pairs

    if arguments.limit < 1:
        raise UserError(f"--limit={arguments.limit} must be at least 1")
    if arguments.pairs is None:
        return builtin_minimal_pairs(BUILTIN_PAIRS)
    seen: Counter[str] = Counter()
    chosen = []
    for pair in read_minimal_pairs(arguments.pairs):
        seen[pair.paradigm] += 1
        if seen[pair.paradigm] <= arguments.limit:
            chosen.append(pair)
    return chosen


def _probe_pairs(snli: Path | None, heads: "Mapping[str, int]") -> "list[InferencePair]":
    """NLI pairs of a file, which need a model with an NLI head, or built-in ones."""
    from tupe_jax.lab.nli_pairs import builtin_pairs, snli_pairs
    from tupe_jax.lab.nli_probes import inference_head

    if snli is None:
        return builtin_pairs("test", BUILTIN_PROBE_PAIRS) if heads else []
    try:
        inference_head(heads)
    except UserError as error:
        raise UserError(f"--snli={snli} cannot be used: {error}") from None
    return snli_pairs(snli)

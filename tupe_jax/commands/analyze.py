"""Measure what a trained model has learned about positions and word order.

  tupe analyze runs/tupe_r                              the newest checkpoint of a work directory
  tupe analyze runs/tupe_r --length=64 --words=256      number of positions and of probing words
  tupe analyze runs/tupe_r --lengths=64,128,256,512     inputs longer than those in training
  tupe analyze runs/tupe_r --pairs=blimp.jsonl.gz       minimal pairs in BLiMP's form
  tupe analyze runs/tupe_r bert-base-uncased albert     several models: a table
  tupe analyze runs/finetune-builtin_nli                also word-order probes
  tupe analyze runs/finetune-snli --snli=dev.jsonl.gz   the same with parsed pairs from SNLI

Prints a report and writes it to --out, with all numbers as JSON, one line per head as CSV, and
plots of the matrices: position-only attention from the bias and by identical words, locality,
symmetry and other metrics, kinds of heads, BERT-A's four terms, the sensitivity of representations
to word order, and minimal pairs (from the built-in grammar unless --pairs is given). For a model
fine-tuned on NLI it also measures accuracy after constituents are shuffled and roles exchanged.
(Minimal pairs mean little for a fine-tuned model: its encoder no longer matches the MLM head.)

--lengths measures position-only attention and the loss on masked tokens. The same tokens are masked
at every length. Tables of positions are extended by several rules: as they are, interpolated, or
with copies of the last trained row. The text is built-in unless --text is given.

For several models it compares symmetry and locality only. A model may be a folder in Hugging Face's
layout. For a model without a tokenizer, such as an imported official checkpoint, it measures
position-only attention only.
"""

import argparse
import math
from typing import TYPE_CHECKING

from tupe_jax.utils.errors import UserError, reason, writing_failed
from tupe_jax.utils.paths import Path, storage_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tupe_jax.data.labelled.blimp_snli import MinimalPair
    from tupe_jax.inference.trained_model import TrainedModel
    from tupe_jax.lab.nli_pairs import NliPair

LONGEST = 128
WORDS = 64
BUILTIN_PAIRS = 500
BUILTIN_PROBE_PAIRS = 1500
"""Roles can be exchanged in a tenth of these."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        nargs="+",
        help="a work directory, a checkpoint, a model folder or a fine-tuning run",
    )
    parser.add_argument(
        "--out", type=storage_path, default=Path("analysis"), help="default: analysis"
    )
    parser.add_argument(
        "--length",
        type=int,
        help=f"number of positions without [CLS] (default: as in training, at most {LONGEST})",
    )
    parser.add_argument(
        "--words", type=int, default=WORDS, help=f"number of probing words (default: {WORDS})"
    )
    parser.add_argument(
        "--lengths", metavar="N,N", help="input lengths in tokens with [CLS], such as 64,128,256"
    )
    parser.add_argument(
        "--text", type=storage_path, help="held-out text for --lengths, one sentence per line"
    )
    parser.add_argument(
        "--pairs", type=storage_path, help="minimal pairs, a .jsonl or .jsonl.gz file"
    )
    parser.add_argument(
        "--limit", type=int, default=100, help="how many of --pairs, per paradigm (default: 100)"
    )
    parser.add_argument(
        "--snli",
        type=storage_path,
        help="pairs for the probes, in the format of SNLI's own .jsonl files",
    )
    parser.add_argument(
        "--vocabulary", type=storage_path, help="tokenizer of a model folder without one"
    )


def run(arguments: argparse.Namespace) -> None:
    from tupe_jax.inference.loading import load
    from tupe_jax.lab.analysis import RequestedLengths, analyse
    from tupe_jax.lab.analysis_report import write_report

    if len(arguments.checkpoint) > 1:
        return _compare(arguments)
    (checkpoint,) = arguments.checkpoint
    pairs = _pairs(arguments)
    texts = _held_out_texts(arguments)
    lengths = _requested(arguments.lengths)
    model = load(checkpoint, arguments.vocabulary)
    needs_tokenizer = arguments.pairs or arguments.snli or arguments.text
    tokenizer = model.tokenizer if needs_tokenizer else model.optional_tokenizer
    probe_pairs = _probe_pairs(arguments.snli, model.classification_heads)
    _create(arguments.out)
    analysis = analyse(
        model.float32_module(),
        tokenizer,
        ordinary_ids=model.ordinary_ids,
        length=_usual_length(model) if arguments.length is None else arguments.length,
        words=arguments.words,
        pairs=pairs,
        probe_pairs=probe_pairs,
        head_lengths={name: head.length for name, head in model.metadata.heads.items()},
        requested=RequestedLengths(lengths, _trained_length(model), texts) if lengths else None,
    )
    at_step = "" if model.metadata.step is None else f", step {model.metadata.step}"
    probed = "" if arguments.snli is None else f", probed with {arguments.snli}"
    report, *others = write_report(analysis, f"{checkpoint}{at_step}{probed}", arguments.out)
    print(report.read_text(encoding="utf-8"))
    print(f"in {arguments.out}: {', '.join(path.name for path in (report, *others))}")


def _compare(arguments: argparse.Namespace) -> None:
    """A table of all checkpoints, at a length that all of them support."""
    import dataclasses
    import json

    from tupe_jax.inference.loading import load
    from tupe_jax.lab.comparison import as_table, measure

    for name in ("pairs", "snli", "vocabulary", "lengths", "text"):
        if getattr(arguments, name) is not None:
            raise UserError(f"--{name} works with one model; give one checkpoint")
    models = {path: load(path) for path in arguments.checkpoint}
    shortest = min(_usual_length(model) for model in models.values())
    settings = {
        "length": shortest if arguments.length is None else arguments.length,
        "words": arguments.words,
    }
    _create(arguments.out)
    lines = [
        measure(path, model.float32_module(), model.ordinary_ids, **settings)
        for path, model in models.items()
    ]
    table = as_table(lines, **settings)
    (arguments.out / "comparison.txt").write_text(table + "\n", encoding="utf-8")
    found = {**settings, "models": [dataclasses.asdict(line) for line in lines]}
    (arguments.out / "comparison.json").write_text(json.dumps(found, indent=1) + "\n")
    print(table)
    print(f"in {arguments.out}: comparison.txt, comparison.json")


def _usual_length(model: "TrainedModel") -> int:
    """Positions of a pre-training sequence without [CLS], as far as the model has them."""
    from tupe_jax.model.positions import longest_input

    length = model.metadata.length or LONGEST + 1
    return int(min(length - 1, LONGEST, longest_input(model.config) - 1))


def _trained_length(model: "TrainedModel") -> int:
    """The length of a pre-training sequence; if unknown, the largest length of the model."""
    from tupe_jax.model.positions import longest_input

    longest = longest_input(model.config)
    return int(model.metadata.length or (LONGEST if longest == math.inf else longest))


def _requested(lengths: str | None) -> list[int]:
    from tupe_jax.lab.length_extrapolation import check_lengths

    if lengths is None:
        return []
    try:
        found = [int(number) for number in lengths.split(",")]
    except ValueError:
        raise UserError(f"--lengths={lengths}: expected numbers such as 64,128,256") from None
    check_lengths(found, "--lengths")
    return found


def _held_out_texts(arguments: argparse.Namespace) -> list[str] | None:
    from tupe_jax.commands.given_texts import lines_of

    if arguments.text is None:
        return None
    if arguments.lengths is None:
        raise UserError(f"--text={arguments.text} has no effect without --lengths; give both")
    return lines_of(arguments.text)


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise writing_failed(f"cannot create {folder}: {reason(error)}", error) from None


def _pairs(arguments: argparse.Namespace) -> "list[MinimalPair]":
    """The first pairs of each paradigm in a file, or pairs from the built-in grammar."""
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


def _probe_pairs(snli: Path | None, heads: "Mapping[str, int]") -> "list[NliPair]":
    """Pairs from a file, which need a model with an NLI head, or built-in pairs."""
    from tupe_jax.lab.nli_pairs import builtin_pairs, snli_pairs
    from tupe_jax.lab.nli_probes import nli_head

    if snli is None:
        return builtin_pairs("test", BUILTIN_PROBE_PAIRS) if heads else []
    try:
        nli_head(heads)
    except UserError as error:
        raise UserError(f"--snli={snli} cannot be used: {error}") from None
    return snli_pairs(snli)

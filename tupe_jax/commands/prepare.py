"""Tokenize and pack a data task, and write its sequences to ArrayRecord shards.

  tupe prepare --task='text:books/*.txt.gz' --vocabulary=books.model --length=512 --out=rows

A task is a source, or a mixture of sources with weights (passes over each source):
  builtin               the generated corpus; builtin:5000 for its first 5,000 documents
  text:GLOB             a sentence or paragraph per line, a blank line between documents
  jsonl:GLOB#FIELD      a document per line, in a field of a JSON object (default: text)
  parquet:GLOB#COLUMN   a document per row (default: text)
  wiki40b/en, wikipedia, c4/en, lm1b      from TFDS, prepared under $TFDS_DATA_DIR
  'wikipedia + 2 * text:books/*.txt'      a mixture

Files of lines are plain, .gz or .zst. Every line of a record's text is a sentence or paragraph.

One document in 200, chosen by its text, goes to the validation split. If the command is killed,
run it again: it keeps finished shards, and the result is the same. The tokenizer is copied into the
folder, so `tupe pretrain --config.data.prepared=FOLDER` needs no other file. Length, packing and
vocabulary size must match the config.

Several machines can share the work. They need one --out, on a shared file system or gs://, and the
result has the same bytes:
  --runner=DaskRunner --dask_client_address=tcp://HOST:8786
                        on Apache Beam, with any of its runners and options
  --part=2/8            the third of eight calls, in any order; then a call without --part collects
"""

import argparse
import logging
import os
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, get_args

from tupe_jax.config.schema import OnError, Packing
from tupe_jax.data.pretraining.cleaning import CLEANING_STEPS, parse_cleaning
from tupe_jax.data.pretraining.deduplication import Deduplication
from tupe_jax.run.shard import WorkShard
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import absolute, storage_path

if TYPE_CHECKING:
    from tupe_jax.data.pretraining.prepare import PartResult, Work

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", required=True, help="source or mixture, see above")
    parser.add_argument(
        "--vocabulary", required=True, type=storage_path, help="tokenizer, from `tupe vocab`"
    )
    parser.add_argument(
        "--length", type=int, default=512, help="tokens per sequence (default: 512)"
    )
    parser.add_argument(
        "--packing",
        choices=get_args(Packing),
        default="stream",
        help="stream (default) splits lines across sequences; sentences keeps lines whole and "
        "pads; pairs makes sentence pairs for objective.name=masked_lm_nsp",
    )
    parser.add_argument(
        "--out", required=True, type=storage_path, help="folder to write or to resume"
    )
    parser.add_argument(
        "--cleaning",
        default="all",
        help=f"all (default), none, or some of {', '.join(CLEANING_STEPS)}",
    )
    parser.add_argument("--shards", type=int, help="training shards (default: by size)")
    parser.add_argument("--workers", type=int, help="processes here (default: all cores)")
    parser.add_argument(
        "--deduplicate",
        choices=get_args(Deduplication),
        default="none",
        help="exact drops copies of documents in the whole corpus, across shards and sources "
        "(default: none, only --cleaning drops repeats, within a shard)",
    )
    parser.add_argument("--part", metavar="I/N", help="only part I of N, for arrays of jobs")
    parser.add_argument(
        "--runner", help="run on Apache Beam; it gets all options that are not listed here"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the built-in corpus and of sentence pairs"
    )
    parser.add_argument(
        "--on-error",
        choices=get_args(OnError),
        default="stop",
        help="at a broken record or file: stop (default), or skip and count it",
    )


def run(arguments: argparse.Namespace) -> None:
    shortest = 8 if arguments.packing == "pairs" else 2
    for name, least in (("length", shortest), ("workers", 1), ("shards", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise UserError(f"--{name}={value} must be at least {least}")
    cleaning = parse_cleaning(arguments.cleaning)
    part = None if arguments.part is None else WorkShard.parse(arguments.part, "--part")
    if arguments.runner is not None:
        for name in ("part", "workers"):
            if getattr(arguments, name) is not None:
                raise UserError(f"--{name} is for runs without --runner; leave out one of them")

    # TensorFlow takes seconds to import; --help and wrong arguments need not wait for it.
    from tupe_jax.data.pretraining.division import PrepareConfig
    from tupe_jax.data.pretraining.prepare import prepare, prepare_part

    settings = PrepareConfig(
        task=arguments.task,
        tokenizer=arguments.vocabulary,
        length=arguments.length,
        cleaning=cleaning,
        shards=arguments.shards,
        seed=arguments.seed,
        packing=arguments.packing,
        deduplicate=arguments.deduplicate,
        on_error=arguments.on_error,
    )
    out = absolute(arguments.out)
    workers = arguments.workers or os.cpu_count() or 1
    unit = "shard" if settings.deduplicate == "none" else "step"
    start = time.monotonic()
    if part is not None:
        with closing(_Progress(unit)) as progress:
            made = prepare_part(settings, out, part, workers, progress.show)
        _print_rate(made.work, time.monotonic() - start)
        _print_next(arguments.part, made)
        return
    runner = None
    if arguments.runner is not None:
        from tupe_jax.data.pretraining.beam import BeamRunner

        runner = BeamRunner(arguments.runner, arguments.runner_options)
    with closing(_Progress(unit)) as progress:
        outcome = prepare(settings, out, workers, progress.show, runner)
    for name, split in outcome.index.splits.items():
        print(
            f"{name}: {split.rows:,} sequences, {split.tokens:,} tokens, "
            f"{split.documents:,} documents in {len(split.shards)} shards"
        )
    for source in outcome.index.sources:
        if source.compared:
            print(
                f"{source.source}: {source.copies:,} of {source.compared:,} documents were copies "
                f"({source.copies / source.compared:.1%}) and are dropped"
            )
        if source.alone:
            print(
                f"{source.source}: {source.alone:,} documents have no pairs, because each is the "
                "only one of its shard; fewer --shards would keep them"
            )
        if source.broken:
            print(
                f"{source.source}: broken records or files skipped: {source.broken:,}, first "
                f"{source.first_broken}"
            )
    if not outcome.index.splits["validation"].rows:
        logger.warning(
            "no document was held out for validation, as one in 200 is; use more documents, or "
            "separate them (in text files by blank lines)"
        )
    _print_rate(outcome.work, time.monotonic() - start)
    print(f"written to {arguments.out}")


def _print_rate(work: "Work", seconds: float) -> None:
    if work.tokens:
        print(
            f"{work.tokens / seconds:,.0f} tokens/s, "
            f"{work.tokens / work.core_seconds:,.0f} tokens/s per core in making shards"
        )


def _print_next(part: str, made: "PartResult") -> None:
    """Say what is missing, and which call is next."""
    is_last = made.stage == "shards"
    last = "run the same command without --part"
    then = last if is_last else "run all parts again"
    if made.missing:
        print(
            f"part {part} is done; of {made.jobs} {made.stage}, {made.missing} are missing: when "
            f"all other parts are done, {then}"
        )
    else:
        print(f"all {made.jobs} {made.stage} are done: {last} to finish")


class _Progress:
    """A bar that appears when work starts, so that an earlier error is printed alone."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._bar: Any = None

    def show(self, done: int, total: int, tokens: int) -> None:
        if self._bar is None:
            from tqdm import tqdm

            # A terminal shows a live bar, a log file a line every 30 seconds.
            seconds = 0.5 if sys.stderr.isatty() else 30
            self._bar = tqdm(
                initial=done, total=total, unit=self._unit, mininterval=seconds, miniters=0
            )
        self._bar.total = total
        if tokens:  # a runner of Beam does not know them
            self._bar.set_postfix_str(f"{tokens / 1e6:.1f} M tokens", refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

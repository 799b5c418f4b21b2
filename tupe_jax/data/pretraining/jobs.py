"""The jobs of `tupe prepare`: hash the documents of a shard, find copies, and make a shard.

A job needs the corpus and the files of earlier stages, but no other job of its own stage. A job
that runs twice, even at the same time, writes the same files, atomically.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tupe_jax.config.schema import Packing
from tupe_jax.data.pretraining import copies, workers
from tupe_jax.data.pretraining.division import PrepareConfig, ShardJob
from tupe_jax.data.pretraining.packing import DOCUMENTS, Ids
from tupe_jax.data.pretraining.sentence_pairs import join_documents, split_documents
from tupe_jax.data.pretraining.seqio_tasks import make_task
from tupe_jax.data.pretraining.sources import TRAIN, VALIDATION, DocumentSource, parse_source
from tupe_jax.data.pretraining.sources.base import Broken
from tupe_jax.data.pretraining.token_shards import (
    TOKENS,
    examples_of,
    record_type,
    shard_file_name,
    write_shard,
)
from tupe_jax.data.pretraining.unfinished import (
    Preparation,
    ShardRecord,
    copies_path,
    hashes_path,
    write_held_out,
    write_record,
)
from tupe_jax.data.tf_utils import DOCUMENTS_AT_ONCE, elements, seqio, tf
from tupe_jax.tokenizers.sentencepiece import PAD_ID, SentencePieceTokenizer
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import file_size

_SEQUENCES_AT_ONCE = 1_024


def hash_shard(
    config: PrepareConfig, preparation: Preparation, job: ShardJob, report: workers.Report
) -> None:
    """Write the hashes of the documents of a shard."""
    preparation.check()
    source = _unchanged_source(config, job)
    hashes = copies.hash_documents(source, job.index, job.count, job.share, report)
    _unchanged_source(config, job)
    preparation.check()
    copies.write_hashes(hashes_path(preparation.folder, job.number), hashes)


def find_copies(
    preparation: Preparation,
    starts_source: Sequence[bool],
    starts_pass: Sequence[bool],
    ranges: int,
    number: int,
    report: workers.Report,
) -> None:
    """Write which documents of which shards are copies, for one range of hashes."""
    preparation.check()
    folder = preparation.folder
    paths = [hashes_path(folder, shard) for shard in range(len(starts_pass))]
    hashes = copies.read_hashes(paths, number, ranges)
    found = copies.find_copies(hashes, starts_source, starts_pass)
    preparation.check()
    copies.write_copies(copies_path(folder, number), found)


def make_shard(
    config: PrepareConfig,
    preparation: Preparation,
    count: int,
    ranges: int,
    job: ShardJob,
    report: workers.Report,
) -> None:
    """Write a training shard, its validation sequences and, last, its record.

    `ranges` is the number of files with copies to drop, or 0 to keep all documents.
    """
    start = time.process_time()
    preparation.check()
    folder = preparation.folder
    tokenizer = SentencePieceTokenizer.load(config.tokenizer)
    source = _unchanged_source(config, job)
    rest: DocumentSource = source
    compared = dropped = 0
    if ranges:
        compared = copies.count_hashes(file_size(hashes_path(folder, job.number)))
        paths = [copies_path(folder, number) for number in range(ranges)]
        to_drop = copies.read_copies(paths, job.number, count)
        rest, dropped = copies.WithoutCopies(source, to_drop), len(to_drop)
    pipeline = _Pipeline(config, job, source, rest, tokenizer)
    documents = tokens = 0

    def training_examples() -> Iterator[Mapping[str, Any]]:
        nonlocal documents, tokens
        for batch in pipeline.sequences(TRAIN):
            documents += int(batch[DOCUMENTS].sum())
            batch_tokens = int(np.count_nonzero(batch[TOKENS] != PAD_ID))
            tokens += batch_tokens
            yield from examples_of(batch)
            report(batch_tokens)
        preparation.check()  # only then does the file get its name

    path = folder / shard_file_name(TRAIN, job.number, count)
    record = record_type(config.packing, tokenizer.size, config.length)
    shard = write_shard(path, training_examples(), record)
    held_out, validation_documents = _hold_out(pipeline)
    is_alone = config.packing == "pairs" and not shard.rows
    alone = len(split_documents(pipeline.documents(TRAIN))) if is_alone else 0
    preparation.check()
    write_held_out(folder, job.number, held_out)
    counts_broken = config.on_error == "skip" and job.pass_number == 0
    broken = source.count_broken(job.index, job.count) if counts_broken else Broken()
    finished = ShardRecord(
        rows=shard.rows,
        bytes=shard.bytes,
        tokens=tokens,
        documents=documents,
        validation_documents=validation_documents,
        core_seconds=time.process_time() - start,
        broken=broken.count,
        damaged=broken.damaged,
        first_broken=broken.first,
        compared=compared,
        copies=dropped,
        alone=alone,
    )
    _unchanged_source(config, job)
    preparation.check()
    write_record(folder, job.number, finished)


@dataclass(frozen=True)
class _Pipeline:
    """The SeqIO tasks of one shard. `source` is that of the job, and `rest` is without copies."""

    config: PrepareConfig
    job: ShardJob
    source: DocumentSource
    rest: DocumentSource
    tokenizer: SentencePieceTokenizer

    def sequences(self, split: str) -> Iterator[Mapping[str, Any]]:
        """Yield batches of the sequences of a split."""
        packing, key = self.config.packing, (self.config.seed, self.job.pass_number)
        examples = self._dataset(self._task(packing, key), split)
        yield from elements(examples.batch(_SEQUENCES_AT_ONCE))

    def documents(self, split: str) -> Ids:
        """Return the tokens of the documents of a split, with [PAD] after each."""
        task = self._task("stream", (0, 0))
        unpacked = self._dataset(task.replace(preprocessors=task.preprocessors[:-1]), split)
        parts = elements(join_documents(unpacked, DOCUMENTS_AT_ONCE))
        return np.concatenate([np.zeros([0], np.int32), *parts])

    def _task(self, packing: Packing, key: Sequence[int]) -> seqio.Task:
        job, cleaning = self.job, self.config.cleaning
        task = make_task(self.source, self.tokenizer, cleaning, job.share, packing, key)
        # The registered task is that of all shards, in a worker that lives on also of earlier runs.
        return task.replace(source=self.rest)

    def _dataset(self, task: seqio.Task, split: str) -> tf.data.Dataset:
        return task.get_dataset(
            sequence_length={TOKENS: self.config.length},
            split=split,
            shuffle=False,
            shard_info=seqio.ShardInfo(self.job.index, self.job.count),
            try_in_mem_cache=False,
            trim_output_features=False,  # sequences have their length; trimming costs time
        )


def _hold_out(pipeline: _Pipeline) -> tuple[Ids, int]:
    """Return the validation sequences of a shard and the number of their documents.

    For sentence pairs, return documents: pairs are made from those of all shards, because a shard
    may hold out only one.
    """
    is_first_pass = pipeline.job.pass_number == 0
    if pipeline.config.packing == "pairs":
        tokens_T = pipeline.documents(VALIDATION) if is_first_pass else np.zeros([0], np.int32)
        return tokens_T, len(split_documents(tokens_T))
    found = list(pipeline.sequences(VALIDATION)) if is_first_pass else []
    none = np.zeros([0, pipeline.config.length], np.int32)
    sequences = np.concatenate([none, *(each[TOKENS] for each in found)])
    return sequences, sum(int(each[DOCUMENTS].sum()) for each in found)


def _unchanged_source(config: PrepareConfig, job: ShardJob) -> DocumentSource:
    """Return the source of a job. Raise if it has changed since the corpus was divided.

    A new file would shift the division: some documents would be read twice and others never.
    """
    source = parse_source(job.source, config.seed, config.on_error)
    if source.identity != job.identity:
        raise UserError(
            f"{job.source}: the corpus changed while it was being prepared; delete the output "
            "folder and start again when all files are complete"
        )
    return source

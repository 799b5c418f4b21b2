"""`tupe prepare`: run a data task once and write its sequences to ArrayRecord shards.

The corpus is divided into shards. The division depends on the config alone, and a shard depends
only on the corpus and its number, so the result is the same bytes for any number of workers,
machines and interruptions. The output folder holds:

    unfinished/                  what is done, and with which settings: see `unfinished.py`
    train-00003-of-00008...      the training sequences of shard 3
    tokenizer.model              a copy of the tokenizer, which all workers use
    index.json                   written at the end; then `unfinished` is deleted

The work is done in stages. The jobs of a stage need the files of earlier stages, but not each
other. So they run in worker processes, on Apache Beam, or in several calls on several machines.
`division.py` has the settings and the shards, `jobs.py` what a job does.

Sequences are not shuffled here. The reader shuffles them in every epoch.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tupe_jax.data.pretraining import copies, workers
from tupe_jax.data.pretraining.division import PrepareConfig, ShardJob, divide
from tupe_jax.data.pretraining.jobs import find_copies, hash_shard, make_shard
from tupe_jax.data.pretraining.packing import Ids
from tupe_jax.data.pretraining.sources import TRAIN, VALIDATION
from tupe_jax.data.pretraining.token_shards import (
    INDEX_FILE,
    TOKENIZER_FILE,
    TOKENS,
    PreparedIndex,
    ShardFile,
    SourceCounts,
    Split,
    examples_of,
    read_index,
    record_type,
    shard_file_name,
    write_index,
    write_shard,
)
from tupe_jax.data.pretraining.unfinished import (
    UNFINISHED,
    Preparation,
    ShardRecord,
    begin,
    copies_path,
    delete_unfinished,
    hashes_path,
    is_begun,
    read_held_out,
    read_record,
    record_path,
    writing_errors,
)
from tupe_jax.data.pretraining.validation_split import validation_features
from tupe_jax.run.shard import ALL_WORK, WorkShard
from tupe_jax.tokenizers.sentencepiece import PAD_ID, SentencePieceTokenizer
from tupe_jax.utils.errors import UserError, reason
from tupe_jax.utils.files import (
    atomic_file,
    exclusive_lock,
    file_names,
    file_sizes,
    in_threads,
    shared_lock,
)
from tupe_jax.utils.object_storage import check_reachable
from tupe_jax.utils.paths import Path, glob_in, is_object

HASHES, RANGES, SHARDS = "hashes of shards", "ranges of hashes", "shards"
"""The stages, by what their jobs make."""

_SHARDS_AT_ONCE = 16
REFRESH_SECONDS = 5.0

# Called with the number of finished jobs, the number of jobs known so far, and the tokens packed.
Show = Callable[[int, int, int], None]


# Runs a function for all jobs, anywhere and in any order, and returns when all are done.
Runner = Callable[[Callable[[Any, workers.Report], None], Sequence[Any], workers.Show], None]


@dataclass(frozen=True)
class Work:
    """What one call has made: the tokens of its shards, and the time of making them."""

    tokens: int
    core_seconds: float


@dataclass(frozen=True)
class PrepareResult:
    """The index of the finished folder, and the work of this call."""

    index: PreparedIndex
    work: Work


@dataclass(frozen=True)
class PartResult:
    """The last stage that a part could take part in, and the work of this call.

    Of the `jobs` of that stage, `missing` belong to other parts and are not done.
    """

    stage: str
    jobs: int
    missing: int
    work: Work


@dataclass(frozen=True)
class Stage:
    """Jobs that do not need each other. Job n is done when its file in `unfinished` exists."""

    name: str
    function: Callable[[Any, workers.Report], None]
    jobs: Sequence[Any]
    path: Callable[[Path, int], Path]

    def undone(self, folder: Path, part: WorkShard = ALL_WORK) -> list[int]:
        """Return the numbers of the jobs of a part that are to be done."""
        found = set(file_names(folder / UNFINISHED))
        numbers = range(part.index, len(self.jobs), part.count)
        return [number for number in numbers if self.path(folder, number).name not in found]


def prepare(
    config: PrepareConfig,
    folder: Path,
    worker_count: int = 1,
    show: Show = lambda jobs_done, jobs, tokens: None,
    runner: Runner | None = None,
) -> PrepareResult:
    """Write the sequences of a task to a folder, or finish what earlier calls have begun.

    The jobs run in `worker_count` processes of this machine, or where `runner` runs them.
    """
    given = SentencePieceTokenizer.load(config.tokenizer)
    jobs, identity = divide(config)
    with _locked(folder, exclusive_lock):
        is_finished = (folder / INDEX_FILE).exists()
        if is_finished and not is_begun(folder):
            delete_unfinished(folder)
            raise _already_finished(folder)
        config, preparation = _begin(folder, config, given, jobs, identity)
        if is_finished:  # by this command, which was killed in its last step
            index = read_index(folder)
            delete_unfinished(folder)
            return PrepareResult(index, Work(0, 0.0))
        run = partial(_run_elsewhere, runner) if runner else partial(_run_here, worker_count)
        stage, missing, work = _run_stages(config, preparation, jobs, ALL_WORK, run, show)
        if missing:
            raise UserError(
                f"{folder}: {missing} of {len(stage.jobs)} {stage.name} are missing, although all "
                "jobs have ended; give a folder that all workers share, or gs://"
            )
        return PrepareResult(_finish(folder, config, jobs), work)


def prepare_part(
    config: PrepareConfig,
    folder: Path,
    part: WorkShard,
    worker_count: int = 1,
    show: Show = lambda jobs_done, jobs, tokens: None,
) -> PartResult:
    """Do the jobs of one part, as far as other parts have done theirs.

    Any number of calls may do this at the same time. At the end, `prepare` collects their work.
    """
    given = SentencePieceTokenizer.load(config.tokenizer)
    jobs, identity = divide(config)
    with _locked(folder, shared_lock):
        if (folder / INDEX_FILE).exists():
            raise _already_finished(folder)
        config, preparation = _begin(folder, config, given, jobs, identity)
        run = partial(_run_here, worker_count)
        stage, missing, work = _run_stages(config, preparation, jobs, part, run, show)
        return PartResult(stage.name, len(stage.jobs), missing, work)


def _stages(
    config: PrepareConfig, preparation: Preparation, jobs: Sequence[ShardJob]
) -> Iterator[Stage]:
    """Yield the stages. Each must be done before the next is asked for."""
    folder = preparation.folder
    ranges = 0
    if config.deduplicate == "exact":
        yield Stage(HASHES, partial(hash_shard, config, preparation), jobs, hashes_path)
        sizes = file_sizes(folder / UNFINISHED)
        files = [hashes_path(folder, job.number).name for job in jobs]
        documents = sum(copies.count_hashes(sizes[file]) for file in files)
        ranges = copies.range_count(documents)
        starts_source = [job.starts_source for job in jobs]
        starts_pass = [job.index == 0 for job in jobs]
        find = partial(find_copies, preparation, starts_source, starts_pass, ranges)
        yield Stage(RANGES, find, range(ranges), copies_path)
    make = partial(make_shard, config, preparation, len(jobs), ranges)
    yield Stage(SHARDS, make, jobs, record_path)


def _run_stages(
    config: PrepareConfig,
    preparation: Preparation,
    jobs: Sequence[ShardJob],
    part: WorkShard,
    run: Callable[[Stage, Path, Sequence[int], workers.Show], None],
    show: Show,
) -> tuple[Stage, int, Work]:
    """Do a part of all stages, up to one that other parts have not done.

    Return that stage or the last one, the number of its jobs that are missing, and the work.
    """
    folder = preparation.folder
    done = total = 0

    def show_done(jobs_done: int, tokens: int) -> None:
        show(done + jobs_done, total, tokens)

    for stage in _stages(config, preparation, jobs):
        numbers = stage.undone(folder, part)
        total += len(range(part.index, len(stage.jobs), part.count))
        done = total - len(numbers)
        show(done, total, 0)
        run(stage, folder, numbers, show_done)
        missing = len(stage.undone(folder))
        if missing:
            break
    made_here = sorted({*numbers} - {*stage.undone(folder)}) if stage.name == SHARDS else []
    made = in_threads(partial(read_record, folder), made_here)
    return (
        stage,
        missing,
        Work(sum(each.tokens for each in made), sum(each.core_seconds for each in made)),
    )


def _run_here(
    worker_count: int, stage: Stage, folder: Path, numbers: Sequence[int], show: workers.Show
) -> None:
    workers.run(worker_count, stage.function, [stage.jobs[number] for number in numbers], show)


def _run_elsewhere(
    runner: Runner, stage: Stage, folder: Path, numbers: Sequence[int], show: workers.Show
) -> None:
    """Run jobs on other machines. Their progress is the number of files that they have written."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(REFRESH_SECONDS):
            with suppress(Exception):  # only the display depends on it
                show(len(numbers) - len(set(stage.undone(folder)) & set(numbers)), 0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        # There, an error is only a text, so it is made ours where it is raised.
        function = partial(_run_job, folder, stage.function)
        runner(function, [stage.jobs[number] for number in numbers], show)
    finally:
        ended.set()
        watcher.join()


def _run_job(
    folder: Path, function: Callable[[Any, workers.Report], None], job: Any, report: workers.Report
) -> None:
    with writing_errors(folder):
        function(job, report)


@contextmanager
def _locked(
    folder: Path, lock: Callable[[Path, UserError], AbstractContextManager[None]]
) -> Iterator[None]:
    """Create the folder and lock it. A killed process frees the lock."""
    check_reachable(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{folder}: a file, not a folder; give a new folder") from None
    except OSError as error:
        raise UserError(
            f"{folder}: cannot create this folder ({reason(error)}); give one that can be written"
        ) from None
    # There are no folders on object storage, but another object can be locked.
    locked = folder.with_name(f"{folder.name}.lock") if is_object(folder) else folder
    held = UserError(f"{folder}: another `tupe prepare` is writing to it")
    with lock(locked, held), writing_errors(folder):
        yield


def _already_finished(folder: Path) -> UserError:
    return UserError(f"{folder}: already finished; give another folder, or delete this one")


def _begin(
    folder: Path,
    config: PrepareConfig,
    given: SentencePieceTokenizer,
    jobs: Sequence[ShardJob],
    identity: str,
) -> tuple[PrepareConfig, Preparation]:
    """Store the settings, or check that other calls have the same, and copy the tokenizer.

    Return the settings with the copy. Several parts may begin at the same time.
    """
    settings = {
        "task": config.description,
        "vocabulary_sha256": given.sha256,
        "length": config.length,
        "seed": config.seed,
        "shards": len(jobs),
        "corpus": identity,
        "cache": None,  # older versions could read documents in another order
        "packing": config.packing,
        "on_error": config.on_error,
        "deduplicate": config.deduplicate,
    }
    preparation = begin(folder, settings)
    return replace(config, tokenizer=_copy_tokenizer(given, folder).path), preparation


def _copy_tokenizer(given: SentencePieceTokenizer, folder: Path) -> SentencePieceTokenizer:
    """Copy the tokenizer into the folder. Later changes to the given file have no effect."""
    path = folder / TOKENIZER_FILE
    if not path.exists():
        with atomic_file(path) as unfinished:
            unfinished.write_bytes(given.path.read_bytes())
    copy = SentencePieceTokenizer.load(path)
    if copy.sha256 != given.sha256:
        raise UserError(f"{given.path}: changed while it was being read; run the command again")
    return copy


def _finish(folder: Path, config: PrepareConfig, jobs: Sequence[ShardJob]) -> PreparedIndex:
    """Write the validation shard and the index, once all training shards are complete."""
    tokenizer, count = SentencePieceTokenizer.load(config.tokenizer), len(jobs)
    records = in_threads(partial(read_record, folder), range(count))
    train = Split(
        # A shard has no sequences if its documents were all held out or all repeats.
        shards=tuple(
            ShardFile(shard_file_name(TRAIN, n, count), record.rows, record.bytes)
            for n, record in enumerate(records)
            if record.rows
        ),
        rows=sum(record.rows for record in records),
        tokens=sum(record.tokens for record in records),
        documents=sum(record.documents for record in records),
    )
    if not train.rows:
        raise _nothing_to_train_on(config, records)
    validation_tokens = 0

    def validation_examples() -> Iterator[Mapping[str, Any]]:
        nonlocal validation_tokens
        for features in validation_features(_held_out(folder, count), config):
            validation_tokens += int(np.count_nonzero(features[TOKENS] != PAD_ID))
            yield from examples_of(features)

    file = folder / shard_file_name(VALIDATION, 0, 1)
    record = record_type(config.packing, tokenizer.size, config.length)
    shard = write_shard(file, validation_examples(), record)
    index = PreparedIndex(
        task=config.description,
        vocabulary_sha256=tokenizer.sha256,
        vocab_size=tokenizer.size,
        length=config.length,
        seed=config.seed,
        splits={
            TRAIN: train,
            VALIDATION: Split(
                shards=(shard,) if shard.rows else (),
                rows=shard.rows,
                tokens=validation_tokens,
                documents=sum(record.validation_documents for record in records),
            ),
        },
        tokenizer=tokenizer.path.name,
        packing=config.packing,
        sources=_counts_by_source(jobs, records),
    )
    _delete_unlisted_files(folder, index)
    write_index(folder, index)
    delete_unfinished(folder)
    return index


def _held_out(folder: Path, count: int) -> Iterator[Ids]:
    """Yield what each shard holds out. A few shards are read at a time."""
    for first in range(0, count, _SHARDS_AT_ONCE):
        numbers = range(first, min(first + _SHARDS_AT_ONCE, count))
        yield from in_threads(partial(read_held_out, folder), numbers)


def _nothing_to_train_on(config: PrepareConfig, records: Sequence[ShardRecord]) -> UserError:
    """Return the error for a corpus without training sequences."""
    broken = sum(record.broken for record in records)
    if broken and not any(record.documents or record.validation_documents for record in records):
        first = next(record.first_broken for record in records if record.broken)
        return UserError(
            f"{config.task}: no text, because all {broken:,} records or files that are not empty "
            f"were broken; correct them, or the task; first {first}"
        )
    if alone := sum(record.alone for record in records):
        return UserError(
            f"{config.task}: packing=pairs draws half of the second passages from another document "
            f"of the same shard, but {alone} shards have one document and no shard has two; "
            "separate documents by blank lines, or use fewer --shards"
        )
    return UserError(f"{config.task}: no text to train on; add text to the corpus")


def _counts_by_source(
    jobs: Sequence[ShardJob], records: Sequence[ShardRecord]
) -> tuple[SourceCounts, ...]:
    by_source: dict[str, list[ShardRecord]] = {}
    passes: dict[str, float] = defaultdict(float)
    for job, record in zip(jobs, records, strict=True):
        by_source.setdefault(job.source, []).append(record)
        passes[job.source] += job.share if job.index == 0 else 0
    return tuple(
        SourceCounts(
            source=source,
            rows=sum(record.rows for record in some),
            tokens=sum(record.tokens for record in some),
            documents=sum(record.documents for record in some),
            validation_documents=sum(record.validation_documents for record in some),
            broken=sum(record.broken for record in some),
            first_broken=next((each.first_broken for each in some if each.broken), ""),
            compared=sum(record.compared for record in some),
            copies=sum(record.copies for record in some),
            damaged=sum(record.damaged for record in some),
            passes=passes[source],
            alone=sum(record.alone for record in some),
        )
        for source, some in by_source.items()
    )


def _delete_unlisted_files(folder: Path, index: PreparedIndex) -> None:
    """Delete empty shards and the leftovers of killed processes."""
    listed = {shard.file for split in index.splits.values() for shard in split.shards}
    for pattern in ("*.array_record*", f"{TOKENIZER_FILE}.*.tmp", f"{INDEX_FILE}.*.tmp"):
        for path in glob_in(folder, pattern):
            if path.name not in listed:
                path.unlink()

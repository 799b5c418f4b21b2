"""`tupe prepare`: run a data task once and write its sequences to ArrayRecord shards.

The corpus is divided into shards. The division depends on the config alone, and a shard depends
only on the corpus and its number, so the result is the same bytes for any number of workers,
machines and interruptions. The output folder holds:

    unfinished/settings.json     the config; a restart must have the same
    unfinished/hashes-00003, copies-00000      for deduplication, see `copies.py`
    unfinished/00003.json        shard 3 is done: its file is complete on disk
    unfinished/00003.npy         its validation sequences, or documents for sentence pairs
    train-00003-of-00008...      its training sequences
    tokenizer.model              a copy of the tokenizer, which all workers use
    index.json                   written at the end; then `unfinished` is deleted

The work is done in stages. The jobs of a stage need the files of earlier stages, but not each
other. So they run in worker processes, on Apache Beam, or in several calls on several machines. A
job that runs twice, even at the same time, writes the same files, atomically.

Sequences are not shuffled here. The reader shuffles them in every epoch.
"""

import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import OnError, Packing
from tupe_jax.data.pretraining import copies, workers
from tupe_jax.data.pretraining.deduplication import Deduplication
from tupe_jax.data.pretraining.packing import DOCUMENTS, Ids, pad_sequences, sequence_ends
from tupe_jax.data.pretraining.sentence_pairs import (
    WINDOW_DOCUMENTS,
    Document,
    SentencePair,
    encode_pairs,
    join_documents,
    split_documents,
    window_pairs,
)
from tupe_jax.data.pretraining.seqio_tasks import Component, make_task, parse_task
from tupe_jax.data.pretraining.sources import TRAIN, VALIDATION, DocumentSource, parse_source
from tupe_jax.data.pretraining.token_shards import (
    INDEX_FILE,
    TOKENIZER_FILE,
    TOKENS,
    Features,
    PreparedIndex,
    ShardFile,
    SourceCounts,
    Split,
    examples_of,
    record_type,
    shard_file_name,
    write_index,
    write_shard,
)
from tupe_jax.data.tf_utils import DOCUMENTS_AT_ONCE, elements, seqio, tf
from tupe_jax.run.shard import ALL_WORK, WorkShard
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SentencePieceTokenizer
from tupe_jax.utils.errors import UserError, reason
from tupe_jax.utils.files import (
    atomic_file,
    exclusive_lock,
    file_names,
    file_size,
    file_sizes,
    in_threads,
    shared_lock,
)
from tupe_jax.utils.object_storage import check_reachable
from tupe_jax.utils.paths import Path, glob_in, is_object

UNFINISHED = "unfinished"
HASHES, RANGES, SHARDS = "hashes of shards", "ranges of hashes", "shards"
"""The stages, by what their jobs make."""

_SEQUENCES_AT_ONCE = 1_024

Sequences = NDArray[np.int32]
# Called with the number of finished jobs, the number of jobs known so far, and the tokens packed.
Show = Callable[[int, int, int], None]


# Runs a function for all jobs, anywhere and in any order, and returns when all are done.
Runner = Callable[[Callable[[Any, workers.Report], None], Sequence[Any], workers.Show], None]


@dataclass(frozen=True)
class PrepareConfig:
    """The settings of `tupe prepare`. With the corpus, they determine every byte of the result."""

    task: str
    tokenizer: Path
    length: int
    cleaning: tuple[str, ...] = ()
    shards: int | None = None
    seed: int = 0
    packing: Packing = "stream"
    deduplicate: Deduplication = "none"
    """`exact` drops copies of documents in the whole corpus."""
    on_error: OnError = "stop"

    @property
    def description(self) -> str:
        """The value of `task` in the index."""
        return f"{self.task} [{', '.join(self.cleaning)}]" if self.cleaning else self.task


@dataclass(frozen=True)
class ShardJob:
    """The work to make training shard `number`: shard `index` of `count` of a pass over a source.

    `identity` is that of the corpus when it was divided. A pass may keep a share of the documents.
    Only pass 0 over a source yields validation sequences.
    """

    number: int
    source: str
    identity: str
    share: float
    index: int
    count: int
    pass_number: int

    @property
    def starts_source(self) -> bool:
        return self.pass_number == self.index == 0


@dataclass(frozen=True)
class ShardRecord:
    """The statistics of a shard that is complete on disk, as stored in `unfinished`."""

    rows: int
    bytes: int
    tokens: int
    documents: int
    validation_documents: int
    core_seconds: float
    broken: int = 0
    first_broken: str = ""
    compared: int = 0
    copies: int = 0
    """Documents compared with the whole corpus, and those that were dropped."""


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
    file_name: Callable[[int], str]

    def undone(self, folder: Path, part: WorkShard = ALL_WORK) -> list[int]:
        """Return the numbers of the jobs of a part that are to be done."""
        found = set(file_names(folder / UNFINISHED))
        numbers = range(part.index, len(self.jobs), part.count)
        return [number for number in numbers if self.file_name(number) not in found]


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
        config = _begin(folder, config, given, jobs, identity)
        runner = runner or partial(workers.run, worker_count)
        stage, missing, work = _run_stages(config, folder, jobs, ALL_WORK, runner, show)
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
        config = _begin(folder, config, given, jobs, identity)
        runner = partial(workers.run, worker_count)
        stage, missing, work = _run_stages(config, folder, jobs, part, runner, show)
        return PartResult(stage.name, len(stage.jobs), missing, work)


def divide(config: PrepareConfig) -> tuple[list[ShardJob], str]:
    """Return the jobs for all training shards, and a text that changes when the corpus does."""
    components = parse_task(config.task, config.seed, config.on_error)
    passes = [
        (component.source, share, number)
        for component in components
        for number, share in enumerate(_passes(component))
    ]
    counts = _shards_per_pass([source for source, _, _ in passes], config.shards)
    jobs: list[ShardJob] = []
    for (source, share, pass_number), count in zip(passes, counts, strict=True):
        if count > source.most_shards:
            raise UserError(
                f"{source.spec}: {count} shards requested, but this corpus can be divided into at "
                f"most {source.most_shards}; set a smaller --shards"
            )
        jobs += [
            ShardJob(
                len(jobs) + index, source.spec, source.identity, share, index, count, pass_number
            )
            for index in range(count)
        ]
    return jobs, " ".join(component.source.identity for component in components)


def _passes(component: Component) -> list[float]:
    """Return the share of the documents kept by each pass: a weight of 2.5 is 1, 1 and 0.5."""
    whole = math.floor(component.weight)
    rest = component.weight - whole
    return [1.0] * whole + ([rest] if rest else [])


def _shards_per_pass(sources: Sequence[DocumentSource], shards: int | None) -> list[int]:
    """Divide the number of shards by size, with at least one shard per pass."""
    if shards is None:
        return [source.default_shards for source in sources]
    spare = shards - len(sources)
    if spare < 0:
        raise UserError(
            f"--shards={shards}: the task makes {len(sources)} passes over its sources, and each "
            f"needs at least one shard; set --shards={len(sources)} or more"
        )
    total = max(sum(source.text_bytes for source in sources), 1)
    counts, before = [], 0
    for source in sources:
        after = before + source.text_bytes
        counts.append(1 + spare * after // total - spare * before // total)
        before = after
    return counts


def _stages(config: PrepareConfig, folder: Path, jobs: Sequence[ShardJob]) -> Iterator[Stage]:
    """Yield the stages. Each must be done before the next is asked for."""
    ranges = 0
    if config.deduplicate == "exact":
        yield Stage(HASHES, partial(hash_shard, config, folder), jobs, _hashes_name)
        sizes = file_sizes(folder / UNFINISHED)
        documents = sum(copies.count_hashes(sizes[_hashes_name(n)]) for n in range(len(jobs)))
        ranges = copies.range_count(documents)
        starts_source = [job.starts_source for job in jobs]
        starts_pass = [job.index == 0 for job in jobs]
        find = partial(find_copies, folder, starts_source, starts_pass, ranges)
        yield Stage(RANGES, find, range(ranges), _copies_name)
    make = partial(make_shard, config, folder, len(jobs), ranges)
    yield Stage(SHARDS, make, jobs, _record_name)


def _run_stages(
    config: PrepareConfig,
    folder: Path,
    jobs: Sequence[ShardJob],
    part: WorkShard,
    runner: Runner,
    show: Show,
) -> tuple[Stage, int, Work]:
    """Do a part of all stages, up to one that other parts have not done.

    Return that stage or the last one, the number of its jobs that are missing, and the work.
    """
    done = total = 0

    def show_done(jobs_done: int, tokens: int) -> None:
        show(done + jobs_done, total, tokens)

    for stage in _stages(config, folder, jobs):
        numbers = stage.undone(folder, part)
        total += len(range(part.index, len(stage.jobs), part.count))
        done = total - len(numbers)
        show(done, total, 0)
        runner(stage.function, [stage.jobs[number] for number in numbers], show_done)
        missing = len(stage.undone(folder))
        if missing:
            break
    made_here = sorted({*numbers} - {*stage.undone(folder)}) if stage.name == SHARDS else []
    made = in_threads(partial(_read_record, folder), made_here)
    return (
        stage,
        missing,
        Work(sum(each.tokens for each in made), sum(each.core_seconds for each in made)),
    )


def hash_shard(config: PrepareConfig, folder: Path, job: ShardJob, report: workers.Report) -> None:
    """Write the hashes of the documents of a shard."""
    source = _unchanged_source(config, job)
    hashes = copies.hash_documents(source, job.index, job.count, job.share, report)
    _unchanged_source(config, job)
    copies.write_hashes(folder / UNFINISHED / _hashes_name(job.number), hashes)


def find_copies(
    folder: Path,
    starts_source: Sequence[bool],
    starts_pass: Sequence[bool],
    ranges: int,
    number: int,
    report: workers.Report,
) -> None:
    """Write which documents of which shards are copies, for one range of hashes."""
    paths = [folder / UNFINISHED / _hashes_name(shard) for shard in range(len(starts_pass))]
    hashes = copies.read_hashes(paths, number, ranges)
    found = copies.find_copies(hashes, starts_source, starts_pass)
    copies.write_copies(folder / UNFINISHED / _copies_name(number), found)


def make_shard(
    config: PrepareConfig,
    folder: Path,
    count: int,
    ranges: int,
    job: ShardJob,
    report: workers.Report,
) -> None:
    """Write a training shard, its validation sequences and, last, its record.

    `ranges` is the number of files with copies to drop, or 0 to keep all documents.
    """
    start = time.process_time()
    tokenizer = SentencePieceTokenizer.load(config.tokenizer)
    source = _unchanged_source(config, job)
    key = (config.seed, job.pass_number)
    task = make_task(source, tokenizer, config.cleaning, job.share, config.packing, key)
    documents_task = make_task(source, tokenizer, config.cleaning, job.share)
    compared = dropped = 0
    rest: DocumentSource = source
    if ranges:
        hashes = folder / UNFINISHED / _hashes_name(job.number)
        compared = copies.count_hashes(file_size(hashes))
        paths = [folder / UNFINISHED / _copies_name(number) for number in range(ranges)]
        to_drop = copies.read_copies(paths, job.number, count)
        dropped = len(to_drop)
        rest = copies.WithoutCopies(source, to_drop)
    # The registered tasks are those of all shards, in a worker that lives on also of earlier runs.
    task, documents_task = task.replace(source=rest), documents_task.replace(source=rest)
    documents = tokens = 0

    def dataset(task: seqio.Task, split: str) -> tf.data.Dataset | None:
        if split == VALIDATION and job.pass_number > 0:
            return None
        return task.get_dataset(
            sequence_length={TOKENS: config.length},
            split=split,
            shuffle=False,
            shard_info=seqio.ShardInfo(job.index, job.count),
            try_in_mem_cache=False,
            trim_output_features=False,  # sequences have their length; trimming costs time
        )

    def batches(split: str) -> Iterator[Any]:
        examples = dataset(task, split)
        return iter(()) if examples is None else elements(examples.batch(_SEQUENCES_AT_ONCE))

    def training_examples() -> Iterator[Mapping[str, Any]]:
        nonlocal documents, tokens
        for batch in batches(TRAIN):
            documents += int(batch[DOCUMENTS].sum())
            batch_tokens = int(np.count_nonzero(batch[TOKENS] != PAD_ID))
            tokens += batch_tokens
            yield from examples_of(batch)
            report(batch_tokens)

    def held_out_sequences() -> tuple[Ids, int]:
        found = list(batches(VALIDATION))
        none = np.zeros([0, config.length], np.int32)
        sequences = np.concatenate([none, *(each[TOKENS] for each in found)])
        return sequences, sum(int(each[DOCUMENTS].sum()) for each in found)

    def held_out_documents() -> tuple[Ids, int]:
        """Pairs are made from the documents of all shards: a shard may hold out only one."""
        unpacked = documents_task.replace(preprocessors=documents_task.preprocessors[:-1])
        found = dataset(unpacked, VALIDATION)
        parts = [] if found is None else elements(join_documents(found, DOCUMENTS_AT_ONCE))
        tokens_T = np.concatenate([np.zeros([0], np.int32), *parts])
        return tokens_T, len(split_documents(tokens_T))

    path = folder / shard_file_name(TRAIN, job.number, count)
    record = record_type(config.packing, tokenizer.size, config.length)
    shard = write_shard(path, training_examples(), record)
    with (
        atomic_file(_held_out_path(folder, job.number)) as unfinished,
        unfinished.open("wb") as file,
    ):
        hold_out = held_out_documents if config.packing == "pairs" else held_out_sequences
        held_out, validation_documents = hold_out()
        np.save(file, held_out)
    counts_broken = config.on_error == "skip" and job.pass_number == 0
    broken, first = source.count_broken(job.index, job.count) if counts_broken else (0, "")
    finished = ShardRecord(
        rows=shard.rows,
        bytes=shard.bytes,
        tokens=tokens,
        documents=documents,
        validation_documents=validation_documents,
        core_seconds=time.process_time() - start,
        broken=broken,
        first_broken=first,
        compared=compared,
        copies=dropped,
    )
    _unchanged_source(config, job)
    _write_json(folder / UNFINISHED / _record_name(job.number), asdict(finished))


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
        raise UserError(f"{folder}: cannot create this folder ({reason(error)})") from None
    # There are no folders on object storage, but another object can be locked.
    locked = folder.with_name(f"{folder.name}.lock") if is_object(folder) else folder
    with lock(locked, UserError(f"{folder}: another `tupe prepare` is writing to it")):
        yield


def validation_features(held_out: Sequence[Ids], config: PrepareConfig) -> Features:
    """Return the examples of the held-out documents of all shards, as if of one shard."""
    if config.packing != "pairs":
        return {TOKENS: repack(np.concatenate(held_out), config.packing)}
    documents = split_documents(np.concatenate(held_out))
    if len(documents) < 2:
        documents = []  # no other document for random passages
    pairs: list[list[SentencePair]] = []
    previous: list[Document] = []
    for start in range(0, len(documents), WINDOW_DOCUMENTS):
        window = documents[start : start + WINDOW_DOCUMENTS]
        pairs += window_pairs(window, previous, config.length, (config.seed, 0))
        previous = window
    features = encode_pairs(pairs, config.length)
    del features[DOCUMENTS]
    return features


def repack(tokens_NxS: Sequences, packing: Packing) -> Sequences:
    """Pack the sequences of several shards as if they came from one stream."""
    length = tokens_NxS.shape[1]
    body = tokens_NxS[:, 1:]
    stream = body[body != PAD_ID]
    if packing == "sentences":
        return pad_sequences(stream, sequence_ends(stream, length), length)
    padded = np.pad(stream, (0, -len(stream) % (length - 1)), constant_values=PAD_ID)
    return np.pad(padded.reshape(-1, length - 1), ((0, 0), (1, 0)), constant_values=CLS_ID)


def _begin(
    folder: Path,
    config: PrepareConfig,
    given: SentencePieceTokenizer,
    jobs: Sequence[ShardJob],
    identity: str,
) -> PrepareConfig:
    """Store the settings, or check that other calls have the same, and copy the tokenizer.

    Return the settings with the copy. Several parts may begin at the same time.
    """
    if (folder / INDEX_FILE).exists():
        raise UserError(f"{folder}: already finished; give another folder, or delete this one")
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
    settings_file = folder / UNFINISHED / "settings.json"
    # Before settings.json is looked for: whatever another part has written, it wrote that first.
    is_foreign = folder.exists() and any(folder.iterdir()) and not (folder / UNFINISHED).exists()
    if not settings_file.exists():
        if is_foreign:
            raise UserError(f"{folder}: not empty; give a new folder")
        settings_file.parent.mkdir(parents=True, exist_ok=True)
        _write_json(settings_file, settings)
    of_older_versions = {"packing": "stream", "on_error": "stop", "deduplicate": "none"}
    begun = of_older_versions | json.loads(settings_file.read_text(encoding="utf-8"))
    for name, value in settings.items():
        if begun.get(name) != value:
            raise UserError(
                f"{folder}: begun with {name} {begun.get(name)!r}, but now it is {value!r}; run "
                "the same command on the same corpus to resume, or delete the folder"
            )
    return replace(config, tokenizer=_copy_tokenizer(given, folder).path)


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
    records = in_threads(partial(_read_record, folder), range(count))
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
        raise UserError(f"{config.task}: no text to train on; add text to the corpus")
    held_out = in_threads(partial(_read_held_out, folder), range(count))
    validation = validation_features(held_out, config)
    file = folder / shard_file_name(VALIDATION, 0, 1)
    record = record_type(config.packing, tokenizer.size, config.length)
    shard = write_shard(file, examples_of(validation), record)
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
                tokens=int(np.count_nonzero(validation[TOKENS] != PAD_ID)),
                documents=sum(record.validation_documents for record in records),
            ),
        },
        tokenizer=tokenizer.path.name,
        packing=config.packing,
        sources=_counts_by_source(jobs, records),
    )
    _delete_unlisted_files(folder, index)
    write_index(folder, index)
    Path(folder / UNFINISHED).rmtree()
    return index


def _counts_by_source(
    jobs: Sequence[ShardJob], records: Sequence[ShardRecord]
) -> tuple[SourceCounts, ...]:
    by_source: dict[str, list[ShardRecord]] = {}
    for job, record in zip(jobs, records, strict=True):
        by_source.setdefault(job.source, []).append(record)
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
        )
        for source, some in by_source.items()
    )


def _delete_unlisted_files(folder: Path, index: PreparedIndex) -> None:
    """Delete empty shards and the leftovers of killed processes."""
    listed = {shard.file for split in index.splits.values() for shard in split.shards}
    for path in (*glob_in(folder, "*.array_record*"), *glob_in(folder, f"{TOKENIZER_FILE}.*.tmp")):
        if path.name not in listed:
            path.unlink()


def _hashes_name(number: int) -> str:
    return f"hashes-{number:05d}"


def _copies_name(number: int) -> str:
    return f"copies-{number:05d}"


def _record_name(number: int) -> str:
    return f"{number:05d}.json"


def _read_record(folder: Path, number: int) -> ShardRecord:
    content = (folder / UNFINISHED / _record_name(number)).read_text(encoding="utf-8")
    return ShardRecord(**json.loads(content))


def _held_out_path(folder: Path, number: int) -> Path:
    return folder / UNFINISHED / f"{number:05d}.npy"


def _read_held_out(folder: Path, number: int) -> Ids:
    tokens: Ids = np.load(io.BytesIO(_held_out_path(folder, number).read_bytes()))
    return tokens


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_file(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2), encoding="utf-8")

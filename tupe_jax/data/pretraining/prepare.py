"""`tupe prepare`: run a task once and write its rows to ArrayRecord shards.

The corpus is divided into parts, one per training shard; the division depends on the settings
alone. A part is a function of the corpus and its number, so the result is the same bytes whatever
the number of workers and however often the work was interrupted. In the output folder:

    unfinished/settings.json     what is being prepared; a restart must agree with it
    unfinished/00003.json        part 3 is done: its shard is complete on disk
    unfinished/00003.npy         its validation rows
    train-00003-of-00008...      its training rows
    tokenizer.model              a copy of the tokenizer, from which all parts are made
    index.json                   written at the end, when `unfinished` is no longer needed

Rows are not shuffled here: the reader of prepared rows shuffles all of them anew in every epoch.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import Packing
from tupe_jax.data.pretraining import token_shards as rows
from tupe_jax.data.pretraining import workers
from tupe_jax.data.pretraining.graph import elements
from tupe_jax.data.pretraining.packing import DOCUMENTS, TOKENS, laid_out, sequence_ends
from tupe_jax.data.pretraining.plan import Part, Settings, divide
from tupe_jax.data.pretraining.seqio_tasks import make_task
from tupe_jax.data.pretraining.sources import TRAIN, VALIDATION, DocumentSource, parse_source
from tupe_jax.data.tensorflow_on_cpu import seqio
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, SentencePieceTokenizer
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file, exclusive_lock

UNFINISHED = "unfinished"

_ROWS_AT_ONCE = 1_024

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Done:
    """The record of a part that is complete on disk; `core_seconds` is the time it computed."""

    rows: int
    bytes: int
    tokens: int
    documents: int
    validation_documents: int
    core_seconds: float


@dataclass(frozen=True)
class Outcome:
    """The finished folder's index, and what this run itself did for it."""

    index: rows.Index
    tokens: int
    core_seconds: float


def prepare(
    settings: Settings,
    folder: Path,
    worker_count: int,
    show: Callable[[int, int, int], None] = lambda parts_done, parts, tokens: None,
) -> Outcome:
    """Write the rows of a task to a folder, or finish what an interrupted call has begun."""
    given = SentencePieceTokenizer.load(settings.vocabulary)
    parts, identity = divide(settings)
    with _only_writer(folder):
        return _prepare(settings, given, parts, identity, folder, worker_count, show)


def _prepare(
    settings: Settings,
    given: SentencePieceTokenizer,
    parts: Sequence[Part],
    identity: str,
    folder: Path,
    worker_count: int,
    show: Callable[[int, int, int], None],
) -> Outcome:
    description = {
        "task": settings.description,
        "vocabulary_sha256": given.sha256,
        "length": settings.length,
        "seed": settings.seed,
        "shards": len(parts),
        "corpus": identity,
        "cache": settings.cache,
        "packing": settings.packing,
    }
    _begin(folder, description)
    vocabulary = _copy_tokenizer(given, folder)
    settings = replace(settings, vocabulary=vocabulary.path)
    todo = [part for part in parts if not _record(folder, part.number).exists()]
    finished_before = len(parts) - len(todo)
    show(finished_before, len(parts), 0)
    made = list(
        workers.run(
            partial(make_part, settings, folder, len(parts)),
            todo,
            min(worker_count, len(todo)),
            show=lambda done, tokens: show(finished_before + done, len(parts), tokens),
        )
    )
    index = _finish(folder, settings, vocabulary, len(parts))
    return Outcome(
        index, sum(done.tokens for done in made), sum(done.core_seconds for done in made)
    )


def make_part(
    settings: Settings, folder: Path, count: int, part: Part, report: workers.Report
) -> Done:
    """Write one part's training shard, its validation rows and, last, its record."""
    start = time.process_time()
    vocabulary = SentencePieceTokenizer.load(settings.vocabulary)
    source = _unchanged_source(settings, part)
    task = make_task(source, vocabulary, settings.cleaning, part.share, settings.packing)
    if settings.cache:
        # Beam has cached the documents, which are the same for every packing.
        documents_task = make_task(source, vocabulary, settings.cleaning, part.share)
        _require_cache(documents_task, settings.cache)
        task = task.replace(name=documents_task.name)
    documents = tokens = 0

    def batches(split: str) -> Iterator[Any]:
        if settings.cache and not task.get_cached_stats(split)["examples"]:
            return iter(())  # SeqIO fails to read the cache of a split without documents
        return elements(
            task.get_dataset(
                sequence_length={TOKENS: settings.length},
                split=split,
                use_cached=settings.cache is not None,
                shuffle=False,
                shard_info=seqio.ShardInfo(part.index, part.count),
                try_in_mem_cache=False,
                trim_output_features=False,  # rows have their length; a step per row costs time
            ).batch(_ROWS_AT_ONCE)
        )

    def training_rows() -> Iterator[Rows]:
        nonlocal documents, tokens
        for batch in batches(TRAIN):
            documents += int(batch[DOCUMENTS].sum())
            batch_tokens = int(np.count_nonzero(batch[TOKENS] != PAD_ID))
            tokens += batch_tokens
            yield from batch[TOKENS]
            report(batch_tokens)

    shard = rows.write_shard(
        folder / rows.shard_file(TRAIN, part.number, count),
        training_rows(),
        rows.dtype_name(vocabulary.size),
    )
    held_out = list(batches(VALIDATION)) if part.first_pass else []
    none = np.zeros([0, settings.length], np.int32)
    with (
        atomic_file(folder / UNFINISHED / f"{part.number:05d}.npy") as unfinished,
        unfinished.open("wb") as file,
    ):
        np.save(file, np.concatenate([none, *(each[TOKENS] for each in held_out)]))
    done = Done(
        rows=shard.rows,
        bytes=shard.bytes,
        tokens=tokens,
        documents=documents,
        validation_documents=sum(int(each[DOCUMENTS].sum()) for each in held_out),
        core_seconds=time.process_time() - start,
    )
    _unchanged_source(settings, part)
    _write_json(_record(folder, part.number), asdict(done))
    return done


def _unchanged_source(settings: Settings, part: Part) -> DocumentSource:
    """The part's source, which must not have changed since the work was divided.

    A file that appears while others are being read would shift the division: some documents would
    be read twice and others never.
    """
    source = parse_source(part.source, settings.seed)
    if source.identity != part.identity:
        raise UserError(
            f"{part.source}: the corpus has changed while it was being prepared; delete the output "
            "folder and start again when all its files are there"
        )
    return source


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder, so that no second command prepares it; a kill lets go of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{folder}: a file, not a folder; give a new folder") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot make this folder ({error.strerror})") from None
    with exclusive_lock(folder, UserError(f"{folder}: another `tupe prepare` is writing to it")):
        yield


def repack(rows_NxL: Rows, packing: Packing) -> Rows:
    """Pack the tokens of rows of several parts as if they were of one."""
    length = rows_NxL.shape[1]
    body = rows_NxL[:, 1:]
    stream = body[body != PAD_ID]
    if packing == "sentences":
        return laid_out(stream, sequence_ends(stream, length), length)
    padded = np.pad(stream, (0, -len(stream) % (length - 1)), constant_values=PAD_ID)
    return np.pad(padded.reshape(-1, length - 1), ((0, 0), (1, 0)), constant_values=CLS_ID)


def _require_cache(task: seqio.Task, cache: str) -> None:
    seqio.add_global_cache_dirs([str(cache)])
    if not task.cache_dir:
        raise UserError(
            f"{cache}: holds no finished cache of the task {task.name}; register the task in a "
            "module of yours and run `PYTHONPATH=. seqio_cache_tasks --module_import=MODULE "
            f"--tasks={task.name} --output_cache_dir={cache}`"
        )


def _begin(folder: Path, description: dict[str, Any]) -> None:
    """Note what is being prepared, or check that it was begun with the same settings."""
    if (folder / rows.INDEX_FILE).exists():
        raise UserError(f"{folder}: holds finished rows already; give another folder or delete it")
    settings_file = folder / UNFINISHED / "settings.json"
    if not settings_file.exists():
        if any(folder.iterdir()) and not settings_file.parent.exists():
            raise UserError(f"{folder}: not empty; give a new folder")
        settings_file.parent.mkdir(exist_ok=True)
        _write_json(settings_file, description)
        return
    begun = {"packing": "stream"} | json.loads(settings_file.read_text(encoding="utf-8"))
    for name, value in description.items():
        if begun.get(name) != value:
            raise UserError(
                f"{folder}: was begun with {name} {begun.get(name)!r}, but now it is {value!r}; "
                "run the same command on the same corpus to go on, or delete the folder"
            )


def _copy_tokenizer(given: SentencePieceTokenizer, folder: Path) -> SentencePieceTokenizer:
    """Put the tokenizer into the folder; a change of the given file no longer matters."""
    path = folder / rows.TOKENIZER_FILE
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(given.path.read_bytes())
    copy = SentencePieceTokenizer.load(path)
    if copy.sha256 != given.sha256:
        raise UserError(f"{given.path}: changed while it was being read; run the command again")
    return copy


def _finish(
    folder: Path, settings: Settings, vocabulary: SentencePieceTokenizer, count: int
) -> rows.Index:
    """Write the validation shard and the index, once all parts are there."""
    done = [Done(**json.loads(_record(folder, n).read_text("utf-8"))) for n in range(count)]
    train = rows.Split(
        # A part may be without rows, if its documents were all held out or all repeats.
        shards=tuple(
            rows.Shard(rows.shard_file(TRAIN, n, count), part.rows, part.bytes)
            for n, part in enumerate(done)
            if part.rows
        ),
        rows=sum(part.rows for part in done),
        tokens=sum(part.tokens for part in done),
        documents=sum(part.documents for part in done),
    )
    if not train.rows:
        raise UserError(f"{settings.task}: holds no text, so there are no rows to train on")
    held_out = np.concatenate([np.load(folder / UNFINISHED / f"{n:05d}.npy") for n in range(count)])
    validation_rows = repack(held_out, settings.packing)
    file = folder / rows.shard_file(VALIDATION, 0, 1)
    shard = rows.write_shard(file, validation_rows, rows.dtype_name(vocabulary.size))
    index = rows.Index(
        task=settings.description,
        vocabulary_sha256=vocabulary.sha256,
        vocab_size=vocabulary.size,
        length=settings.length,
        seed=settings.seed,
        splits={
            TRAIN: train,
            VALIDATION: rows.Split(
                shards=(shard,) if shard.rows else (),
                rows=shard.rows,
                tokens=int(np.count_nonzero(validation_rows != PAD_ID)),
                documents=sum(part.validation_documents for part in done),
            ),
        },
        tokenizer=vocabulary.path.name,
        packing=settings.packing,
    )
    _delete_unlisted_files(folder, index)
    rows.write_index(folder, index)
    shutil.rmtree(folder / UNFINISHED)
    return index


def _delete_unlisted_files(folder: Path, index: rows.Index) -> None:
    """Delete shards without rows, and what killed processes have left."""
    listed = {shard.file for split in index.splits.values() for shard in split.shards}
    for path in (*folder.glob("*.array_record*"), *folder.glob(f"{rows.TOKENIZER_FILE}.*.tmp")):
        if path.name not in listed:
            path.unlink()


def _record(folder: Path, number: int) -> Path:
    return folder / UNFINISHED / f"{number:05d}.json"


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_file(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2), encoding="utf-8")

"""The format of one checkpoint directory, and how it is read and verified.

    state/        every array of the train state by name (Orbax, OCDBT)
    about/        JSON: step, config, data position, validation loss, and the shape, type and
                  checksum (`fingerprint`) of every array; and a checksum of the file itself
    vocabulary/   JSON: the tokenizer file, base64

Reading distinguishes two errors. `DamagedError`: a checksum does not match, and an older checkpoint
may be used instead. `UserError`: the checkpoint is valid, but belongs to another model. It names
the array, and no older checkpoint is tried.
"""

import base64
import errno
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from tupe_jax.checkpointing.checksum import fingerprints
from tupe_jax.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from tupe_jax.utils.errors import RetryError, UserError

FORMAT = 1
Json = dict[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]

# How the messages of tensorstore begin if the storage, not the file, is the problem.
STORAGE_TROUBLE = (
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "ABORTED",
    "CANCELLED",
)
# Operating-system errors in the messages of tensorstore. Only a missing file means damage.
_SYSTEM_ERROR = re.compile(r"os_error_code='(\d+)'")
_GONE = {errno.ENOENT, errno.ENOTDIR}


class DamagedError(Exception):
    """The checkpoint differs from what was written; the message says how."""


@dataclass(frozen=True)
class ArrayMetadata:
    """Shape, type and checksum of a saved array."""

    shape: tuple[int, ...]
    dtype: str
    fingerprint: int

    def __str__(self) -> str:
        return f"{list(self.shape)} {self.dtype}"


@dataclass(frozen=True)
class CheckpointMetadata:
    """The metadata of a checkpoint: everything except its arrays and its tokenizer."""

    step: int
    config: Json
    data: Json
    valid_loss: float | None
    vocabulary_sha256: str
    arrays: dict[str, ArrayMetadata]


def handlers() -> dict[str, ocp.CheckpointHandler]:
    """Orbax's handler of each item."""
    return {
        "state": ocp.PyTreeCheckpointHandler(),
        "about": ocp.JsonCheckpointHandler("about.json"),
        "vocabulary": ocp.JsonCheckpointHandler("vocabulary.json"),
    }


# ------------------------------------------------------------------------------------------- saving


def contents(
    step: int, state: Any, data: Json, config: Json, vocabulary: bytes, valid_loss: float | None
) -> ocp.args.Composite:
    """Return what Orbax writes."""
    arrays = arrays_by_name(state)
    marks = fingerprints(arrays)
    metadata = CheckpointMetadata(
        step=step,
        config=config,
        data=data,
        valid_loss=valid_loss,
        vocabulary_sha256=hashlib.sha256(vocabulary).hexdigest(),
        arrays={
            name: ArrayMetadata(array.shape, str(array.dtype), marks[name])
            for name, array in arrays.items()
        },
    )
    # Through JSON and back: what is checksummed is what a reader will see (tuples become lists).
    plain = json.loads(json.dumps({"format": FORMAT, **asdict(metadata)}))
    return ocp.args.Composite(
        state=ocp.args.PyTreeSave(arrays),
        about=ocp.args.JsonSave({**plain, "sha256": _checksum(plain)}),
        vocabulary=ocp.args.JsonSave({"base64": base64.b64encode(vocabulary).decode()}),
    )


def arrays_by_name(tree: Any) -> dict[str, Any]:
    """The leaves of a tree: `params.encoder.layers.mlp_in.kernel`, `opt_state.0.count`, ..."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    # A Flax variable is a node with one child, `value`, which is left out of the names.
    named = {
        jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value"): leaf
        for path, leaf in leaves
    }
    if len(named) != len(leaves):
        raise ValueError("two arrays of the state have the same name")
    return named


def _checksum(metadata: Json) -> str:
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------------------------------ reading


def read_metadata(directory: epath.Path) -> CheckpointMetadata:
    with _damage_if_unreadable(directory):
        written = dict(handlers()["about"].restore(directory / "about"))
        checksum = written.pop("sha256", None)
        if checksum != _checksum(written):
            raise DamagedError("checksum mismatch in about.json")
    if written["format"] != FORMAT:
        raise UserError(
            f"{directory} has format {written['format']}; this version reads {FORMAT}: "
            "use the version of tupe_jax that wrote it"
        )
    del written["format"]
    arrays = {
        name: ArrayMetadata(tuple(found["shape"]), found["dtype"], found["fingerprint"])
        for name, found in written.pop("arrays").items()
    }
    return CheckpointMetadata(**written, arrays=arrays)


def read_tokenizer(directory: epath.Path, metadata: CheckpointMetadata) -> bytes:
    with _damage_if_unreadable(directory):
        written = handlers()["vocabulary"].restore(directory / "vocabulary")
        vocabulary = base64.b64decode(written["base64"], validate=True)
    if hashlib.sha256(vocabulary).hexdigest() != metadata.vocabulary_sha256:
        raise DamagedError("checksum mismatch in vocabulary.json")
    return vocabulary


def read_state(
    directory: epath.Path,
    metadata: CheckpointMetadata,
    abstract_state: Any,
    together: "Together",
) -> Any:
    """All arrays, in the structure and with the shardings of `abstract_state`."""
    wanted = arrays_by_name(abstract_state)
    _check_same_arrays(directory, metadata.arrays, wanted)
    somewhere = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    restore_args = {
        name: ocp.ArrayRestoreArgs(
            sharding=array.sharding or somewhere, global_shape=array.shape, dtype=array.dtype
        )
        for name, array in wanted.items()
    }
    with together.all_or_none(f"reading {directory}"):  # each process reads its own part
        arrays = _read_arrays(directory, restore_args)
    _check_bits(metadata, arrays)
    return jax.tree.unflatten(jax.tree.structure(abstract_state), [arrays[name] for name in wanted])


def read_params(
    directory: epath.Path, metadata: CheckpointMetadata
) -> dict[tuple[str, ...], Array]:
    """The averaged parameters if there are any, else the parameters, by path, in host memory.

    This process reads all of them, independently of other processes.
    """
    kind = "ema." if any(name.startswith("ema.") for name in metadata.arrays) else "params."
    in_host_memory = ocp.RestoreArgs(restore_type=np.ndarray)
    arrays = _read_arrays(
        directory, {name: in_host_memory for name in metadata.arrays if name.startswith(kind)}
    )
    _check_bits(metadata, arrays)
    return {tuple(name.split(".")[1:]): array for name, array in arrays.items()}


def _read_arrays(directory: epath.Path, restore_args: dict[str, ocp.RestoreArgs]) -> dict[str, Any]:
    with _damage_if_unreadable(directory):
        arrays: dict[str, Any] = ocp.PyTreeCheckpointHandler().restore(
            directory / "state",
            args=ocp.args.PyTreeRestore(
                item=restore_args, restore_args=restore_args, partial_restore=True
            ),
        )
        return {name: arrays[name] for name in restore_args}


def _check_bits(metadata: CheckpointMetadata, arrays: Mapping[str, Any]) -> None:
    for name, found in fingerprints(arrays).items():
        if found != metadata.arrays[name].fingerprint:
            raise DamagedError(f"checksum mismatch in array {name}")


def _check_same_arrays(
    directory: epath.Path, saved: Mapping[str, ArrayMetadata], wanted: Mapping[str, Any]
) -> None:
    theirs = {name: str(found) for name, found in saved.items()}
    ours = {name: f"{list(array.shape)} {array.dtype}" for name, array in wanted.items()}
    different = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if different:
        name = different[0]
        raise UserError(
            f"{directory} belongs to another model or optimizer: {name} is "
            f"{theirs.get(name, 'absent')} there, but {ours.get(name, 'absent')} in this run"
            + f" (and {len(different) - 1} more differ)" * (len(different) > 1)
            + "; resume with the config that it was made with, or choose another work directory"
        )


@dataclass(frozen=True)
class Together:
    """The processes that read a checkpoint, and how long they wait for each other."""

    processes: ProcessGroup = SINGLE_PROCESS
    seconds: float | None = None

    @contextmanager
    def all_or_none(self, what: str) -> Iterator[None]:
        """If one process finds damage, all do.

        They must agree before the next collective operation: if only one fell back to an older
        checkpoint, the others would wait for it forever.
        """
        damage = None
        try:
            yield
        except DamagedError as error:
            damage = error
        damaged = any(self.processes.gather(what, damage is not None, self.seconds))
        if damaged:
            raise damage or DamagedError("another process cannot read its part of it")


@contextmanager
def _damage_if_unreadable(directory: epath.Path) -> Iterator[None]:
    """Convert the errors of Orbax, tensorstore and JSON for broken files to `DamagedError`.

    Failures of the storage or the machine stay as they are: the checkpoint may be valid.
    """
    try:
        yield
    except (UserError, DamagedError):
        raise
    except Exception as error:
        cause = _first_cause(error)  # Orbax wraps errors of tensorstore in a bare Exception
        what = f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
        if _is_trouble_of_storage(cause):
            raise RetryError(f"cannot read {directory}: {what}") from error
        if isinstance(cause, OSError | ValueError | KeyError | TypeError):
            raise DamagedError(what) from error
        raise


def _is_trouble_of_storage(cause: BaseException) -> bool:
    if isinstance(cause, OSError):
        return not isinstance(cause, FileNotFoundError | NotADirectoryError)
    said = str(cause)
    codes = {int(code) for code in _SYSTEM_ERROR.findall(said)}
    return said.startswith(STORAGE_TROUBLE) or bool(codes - _GONE)


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error

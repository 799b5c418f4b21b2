"""The checkpoints of a run: saved in the background, kept by rule, verified when restored.

Each step has a directory. On a file system it is written under a temporary name and renamed when
complete; on object storage a file marks it as complete. So a kill at any moment leaves the previous
checkpoints intact. A restore reads and verifies the newest checkpoint; if it is damaged, the
previous one, and so on. Then it renames the damaged ones to `<step>.damaged`, so that the step can
be saved again. It renames nothing unless it found a valid checkpoint: a run whose checkpoints are
all damaged stops instead of starting from the beginning.
"""

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers as policies
from orbax.checkpoint._src.path.temporary_paths import cleanup_temporary_paths

from tupe_jax.checkpointing import format as checkpoint_format
from tupe_jax.checkpointing.format import Array, CheckpointMetadata, DamagedError, Json
from tupe_jax.checkpointing.save_errors import report_failures
from tupe_jax.config.schema import CheckpointConfig
from tupe_jax.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from tupe_jax.utils.errors import UserError, writing_failed

FOLDER = "checkpoints"
"""The folder of a work directory that holds them."""
TIMEOUT_SECONDS = 1800.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Restored:
    """Everything that a run needs to resume."""

    step: int
    state: Any
    data: Json
    config: Json
    vocabulary: bytes


class Checkpoints:
    """The checkpoints in `folder`; every process of a run makes the same calls.

    A save that failed in the background is a `RetryError` at the next call. With several processes
    it ends all of them at once.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: CheckpointConfig,
        processes: ProcessGroup = SINGLE_PROCESS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._folder = _absolute(folder)
        self._settings = settings
        self._processes = processes
        self._timeout_seconds = timeout_seconds
        with self._report_write_errors():
            # Orbax would not notice before the first save.
            if self._folder.exists() and not self._folder.is_dir():
                raise NotADirectoryError("it is a file")
            self._valid_losses: dict[int, float] = {}
            what = "removing incomplete checkpoints"
            processes.first(what, self._remove_incomplete, timeout_seconds)
            self._manager = self._open()
        for directory in self._newest_first():
            with contextlib.suppress(DamagedError):
                metadata = checkpoint_format.read_metadata(directory)
                if metadata.valid_loss is not None:
                    self._valid_losses[metadata.step] = metadata.valid_loss

    def due(self, step: int) -> bool:
        """Whether this step should be saved: every so many, and at listed steps.

        It is called at every step, so that a failed save is reported soon.
        """
        with self._report_write_errors():
            if not self._manager.is_saving_in_progress():
                self._manager.wait_until_finished()
            return bool(self._manager.should_save(step))

    def save(
        self,
        step: int,
        state: Any,
        *,
        data: Json,
        config: Json,
        vocabulary: bytes,
        valid_loss: float | None = None,
        force: bool = False,
    ) -> bool:
        """Save if `due` or with `force`; return False if neither, or if the step is saved already.

        Returns when the arrays are copied from the devices: the caller may donate them. The rest
        happens in the background.
        """
        with self._report_write_errors():
            self._manager.wait_until_finished()
            if step in self._manager.all_steps() or not (force or self._manager.should_save(step)):
                return False
        if valid_loss is not None and math.isfinite(valid_loss):
            self._valid_losses[step] = valid_loss
        contents = checkpoint_format.contents(
            step, state, data, config, vocabulary, self._valid_losses.get(step)
        )
        with self._report_write_errors():
            return bool(self._manager.save(step, args=contents, force=True))

    def peek_config(self) -> Json | None:
        """The config of the newest checkpoint that can be read, without its arrays."""
        self.wait()
        for directory in self._newest_first():
            with contextlib.suppress(DamagedError):
                return checkpoint_format.read_metadata(directory).config
        return None

    def peek_vocabulary(self) -> bytes | None:
        """The tokenizer file of the newest checkpoint that can be read."""
        self.wait()
        for directory in self._newest_first():
            with contextlib.suppress(DamagedError):
                metadata = checkpoint_format.read_metadata(directory)
                return checkpoint_format.read_tokenizer(directory, metadata)
        return None

    def restore(
        self, abstract_state: Any, attempt: Callable[[], None] = lambda: None
    ) -> Restored | None:
        """The newest valid checkpoint, its arrays with the shardings of `abstract_state`.

        `attempt` is called before each checkpoint that is read, so that each has its own time
        limit.
        """
        self.wait()
        together = checkpoint_format.Together(self._processes, self._timeout_seconds)
        damaged: list[tuple[epath.Path, DamagedError]] = []
        for directory in self._newest_first():
            attempt()
            try:
                with together.all_or_none(f"reading the metadata of {directory}"):
                    metadata = checkpoint_format.read_metadata(directory)
                    vocabulary = checkpoint_format.read_tokenizer(directory, metadata)
                state = checkpoint_format.read_state(directory, metadata, abstract_state, together)
            except DamagedError as damage:
                damaged.append((directory, damage))
                continue
            self._set_aside(damaged, instead=directory)
            return Restored(metadata.step, state, metadata.data, metadata.config, vocabulary)
        _raise_if_any(damaged)
        return None

    def wait(self) -> None:
        """Wait until the last save is complete."""
        with self._report_write_errors():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Wait, and end the threads."""
        with self._report_write_errors():
            self._manager.close()

    def _remove_incomplete(self) -> None:
        """Remove what killed saves left.

        Orbax would do it in the background while it lists the folder. On object storage a folder
        disappears with its last object, and listing it fails.
        """
        with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has an event loop
            thread.submit(asyncio.run, cleanup_temporary_paths(self._folder)).result()

    def _open(self) -> ocp.CheckpointManager:
        settings = self._settings
        kept = [policies.LatestN(settings.keep), policies.CustomSteps(settings.keep_steps)]
        if settings.keep_best:
            kept.append(_Best(self._valid_losses))
        handlers = checkpoint_format.handlers()
        if self._processes.count > 1:
            for handler in handlers.values():
                report_failures(handler, self._end_all)
        return ocp.CheckpointManager(
            self._folder,
            item_handlers=handlers,
            options=ocp.CheckpointManagerOptions(
                save_decision_policy=policies.AnySavePolicy(
                    [
                        policies.FixedIntervalPolicy(settings.every),
                        policies.SpecificStepsPolicy(settings.keep_steps),
                    ]
                ),
                preservation_policy=policies.AnyPreservationPolicy(kept),
                # Orbax would stop here at a damaged checkpoint's metadata; we read our own.
                lightweight_initialize=True,
                # Which checkpoints there are is what process 0 sees, for all.
                single_host_load_and_broadcast=jax.process_count() > 1,
                async_options=ocp.AsyncOptions(
                    timeout_secs=math.ceil(self._timeout_seconds),
                    # In the background, its failure would reach nobody: the handlers wait for the
                    # folder until their timeout.
                    create_directories_asynchronously=False,
                ),
            ),
        )

    def _newest_first(self) -> list[epath.Path]:
        return [self._folder / str(step) for step in sorted(self._manager.all_steps())[::-1]]

    def _set_aside(
        self, damaged: Sequence[tuple[epath.Path, DamagedError]], *, instead: epath.Path
    ) -> None:
        if not damaged:
            return
        for directory, damage in damaged if self._processes.index == 0 else ():
            aside = _free_name(directory)
            directory.rename(aside)
            logger.warning(
                "checkpoint %s is damaged (%s): renamed to %s, resuming from step %s",
                *(directory, damage, aside.name, instead.name),
            )
        self._processes.gather("setting damaged checkpoints aside", None)
        self._manager.close()
        self._manager = self._open()

    @contextlib.contextmanager
    def _report_write_errors(self) -> Iterator[None]:
        """Raise a `UserError` or `RetryError` if writing fails; tensorstore raises a ValueError."""
        try:
            yield
        except UserError:
            raise
        except (OSError, ValueError) as error:
            if self._processes.count > 1:
                self._end_all(error)
            raise self._write_error(error) from error

    def _write_error(self, error: Exception) -> UserError:
        return writing_failed(
            f"cannot save checkpoints in {self._folder}: {' '.join(str(error).split())}; "
            "free disk space or choose another work directory, then start again: "
            "earlier checkpoints are intact",
            error,
        )

    def _end_all(self, error: Exception) -> None:
        """End all processes: they could only wait for this one."""
        failure = self._write_error(error)
        self._processes.abandon(f"failed: {failure}", failure.exit_code, message=str(failure))


@dataclass(frozen=True)
class _Best:
    """Orbax's `BestN` with the losses from our own, checksummed files."""

    valid_losses: dict[int, float]

    def should_preserve(
        self,
        checkpoints: Sequence[policies.PolicyCheckpointInfo],
        *,
        context: policies.PreservationContext,
    ) -> list[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        known = [step for step in steps if step in self.valid_losses]
        best = min(known, key=self.valid_losses.__getitem__, default=None)
        return [step == best for step in steps]


def load_for_use(
    path: str | os.PathLike[str],
) -> tuple[CheckpointMetadata, bytes, dict[tuple[str, ...], Array]]:
    """The metadata, tokenizer file and parameters of a checkpoint, or of a run's newest one.

    The parameters are in host memory, by path; they are the averaged ones if there are any.
    Nothing on disk is changed.
    """
    damaged: list[tuple[epath.Path, DamagedError]] = []
    for directory in _checkpoints_at(_absolute(path)):
        try:
            metadata = checkpoint_format.read_metadata(directory)
            vocabulary = checkpoint_format.read_tokenizer(directory, metadata)
            params = checkpoint_format.read_params(directory, metadata)
        except DamagedError as damage:
            logger.warning("checkpoint %s is damaged (%s)", directory, damage)
            damaged.append((directory, damage))
            continue
        return metadata, vocabulary, params
    _raise_if_any(damaged)
    raise UserError(
        f"{path}: found neither a checkpoint nor a model folder (model.safetensors and config.json)"
    )


def newest_step(workdir: str | os.PathLike[str]) -> int | None:
    """The step of the newest complete checkpoint of a work directory; its content is not read."""
    folder = _absolute(workdir) / FOLDER
    if not folder.is_dir():
        return None
    return max(ocp.path.step.checkpoint_steps(folder), default=None)


def _checkpoints_at(path: epath.Path) -> list[epath.Path]:
    if (path / "about").exists():
        return [path]
    for folder in (path, path / FOLDER):
        if folder.is_dir():
            steps = sorted(ocp.path.step.checkpoint_steps(folder), reverse=True)
            if steps:
                return [folder / str(step) for step in steps]
    return []


def _raise_if_any(damaged: Sequence[tuple[epath.Path, DamagedError]]) -> None:
    if damaged:
        newest, damage = damaged[0]
        what = "the only checkpoint" if len(damaged) == 1 else f"all {len(damaged)} checkpoints"
        raise UserError(
            f"{what} in {newest.parent} cannot be used: {newest.name} is damaged ({damage}); "
            "restore a copy, or move them away to start from the beginning"
        )


def _free_name(directory: epath.Path) -> epath.Path:
    aside, count = directory.with_name(f"{directory.name}.damaged"), 1
    while aside.exists():
        count += 1
        aside = directory.with_name(f"{directory.name}.damaged-{count}")
    return aside


def _absolute(path: str | os.PathLike[str]) -> epath.Path:
    # Not `absolute()` for all: it would make a local path of gs://bucket.
    given = epath.Path(path)
    return given if given.is_absolute() else given.absolute()

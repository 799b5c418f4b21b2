"""Train a model on text, or go on where a run stopped.

  tupe pretrain
  tupe pretrain --config=tupe_r:tiny --workdir=runs/tupe_r --config.train.steps=1000

Without arguments: the quick start, a small TUPE-R on the built-in corpus, in a few minutes.
A config is a file or the name of a shipped one, with `:form`. Any setting can be overridden with
--config.section.key=value. Without `data.vocabulary` and `data.prepared` the run trains a tokenizer
and prepares the data in its work directory. The same command resumes from the newest checkpoint;
SIGTERM or Ctrl-C saves a checkpoint first and exits with code 75.

One run in several processes, here or on several hosts: the same command in each, with
--coordinator=host:port (of process 0), --processes=N and --process=0 .. N-1, or without them on
TPU pods, under SLURM and Open MPI. They need a work directory that all see. If one fails or
dies, all end. Exit code 76: a process was lost or did not come, the storage failed, or another run
still trains in the work directory; start all again.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tupe_jax.utils.errors import UserError

if TYPE_CHECKING:
    from tupe_jax.config.schema import Config
    from tupe_jax.distributed.process_group import ProcessGroup
    from tupe_jax.run.preemption import StopSignal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", default="quickstart", help="file or name (default quickstart)")
    parser.add_argument(
        "--workdir", help="where the run lives (default: runs/<name of the config>)"
    )
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 is found")
    parser.add_argument("--processes", type=int, metavar="N", help="how many make up the run")
    parser.add_argument("--process", type=int, metavar="I", help="which of them this is, from 0")
    parser.add_argument(
        "--wait",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long to wait for the other processes (default 300)",
    )


def run(arguments: argparse.Namespace) -> int:
    from tupe_jax.config.loading import load_config
    from tupe_jax.config.recipes import from_config_dict
    from tupe_jax.distributed.initialize import ProcessFlags, find_place, join, start_jax
    from tupe_jax.distributed.process_group import SINGLE_PROCESS
    from tupe_jax.run.preemption import StopBeforeTraining, StopSignal
    from tupe_jax.utils.host_memory import keep_freed_memory

    keep_freed_memory()
    config = from_config_dict(load_config(arguments.config, arguments.overrides))
    workdir = _workdir(arguments.workdir or f"runs/{_name(arguments.config)}")
    wish = ProcessFlags(arguments.coordinator, arguments.processes, arguments.process)
    with StopSignal() as stop:
        try:
            place = find_place(wish, arguments.wait)
            processes = join(place, arguments.wait)
        except StopBeforeTraining:
            return _stopped_before_training(SINGLE_PROCESS)
        with processes:
            try:
                start_jax(place)
                return _run(config, workdir, stop, processes)
            except StopBeforeTraining:
                return _stopped_before_training(processes)


def _run(config: "Config", workdir: Path, stop: "StopSignal", processes: "ProcessGroup") -> int:
    import jax

    from tupe_jax import __version__
    from tupe_jax.checkpointing.manager import FOLDER as CHECKPOINTS
    from tupe_jax.run.resume_checks import settings
    from tupe_jax.run.workdir import hold, open_workdir
    from tupe_jax.training.dataset import check_given_data, has_tokenizer

    processes.require_same(
        "versions and settings",
        {"tupe_jax": __version__, "jax": jax.__version__, **settings(config)},
    )
    begun = has_tokenizer(workdir) or (workdir / CHECKPOINTS).exists()
    processes.first("the given data", lambda: check_given_data(config, resumes=begun))
    open_workdir(workdir, processes)
    with hold(workdir, processes):
        return _run_alone(config, workdir, stop, processes)


def _run_alone(
    config: "Config", workdir: Path, stop: "StopSignal", processes: "ProcessGroup"
) -> int:
    from tupe_jax.run.preemption import STOPPED_EXIT_CODE
    from tupe_jax.training.loop import pretrain

    outcome = pretrain(config, workdir, stop, processes)
    if not outcome.finished:
        if processes.index == 0:
            print(
                f"stopped at step {outcome.step}, saved; the same command goes on", file=sys.stderr
            )
        return STOPPED_EXIT_CODE

    def summary() -> None:
        from tupe_jax.checkpointing.manager import load_for_use
        from tupe_jax.objectives.registry import exported_model
        from tupe_jax.training.summary import summarise

        if outcome.resumed_from == outcome.step:
            print(f"finished already: {outcome.step} steps; for more, train in a new --workdir")
        shown = outcome
        if processes.count > 1:  # no process has all the weights, but the last checkpoint does
            saved = load_for_use(workdir)
            shown = replace(outcome, model=exported_model(config, saved.params))
        print(summarise(shown, workdir))

    processes.first("the summary", summary)
    return 0


def _stopped_before_training(processes: "ProcessGroup") -> int:
    from tupe_jax.run.preemption import STOPPED_EXIT_CODE

    print("stopped before training began; the same command starts again", file=sys.stderr)
    processes.abandon("was asked to stop before training began", STOPPED_EXIT_CODE)
    return STOPPED_EXIT_CODE


def _workdir(given: str) -> Path:
    if "://" in given:
        raise UserError(
            f"--workdir={given}: a work directory is a folder; mount the bucket (Cloud Storage "
            "FUSE, mountpoint-s3) on every host and give the folder"
        )
    return Path(given)


def _name(config: str) -> str:
    """quickstart, or tupe_r-tiny of configs/tupe_r.py:tiny."""
    file, _, form = config.partition(":")
    return f"{Path(file).stem}-{form}" if form else Path(file).stem

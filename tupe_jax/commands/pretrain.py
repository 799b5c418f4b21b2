"""Pre-train a model on text, or resume a run.

  tupe pretrain
  tupe pretrain --config=tupe_r:tiny --workdir=runs/tupe_r --config.train.steps=1000

Without arguments: the quick start, a small TUPE-R on the built-in corpus, in a few minutes.
A config is a file or the name of a shipped one, with `:form`. Any setting can be overridden with
--config.section.key=value. Without `data.vocabulary` and `data.prepared` the run trains a tokenizer
and prepares the data in its work directory. The same command resumes from the newest checkpoint;
SIGTERM or Ctrl-C saves a checkpoint first and exits with code 75.

To use several processes, on one host or several, start the same command in each with
--coordinator=host:port (of process 0), --processes=N and --process=0 to N-1; on TPU pods, under
SLURM and under Open MPI these flags are not needed. All processes must share the work directory,
a folder or gs://BUCKET/FOLDER. If one fails, dies or hangs, all end.

Exit codes:
  0    finished
  75   stopped on request (SIGTERM, Ctrl-C); the same command resumes
  76   retry: a process was lost, hung or did not connect, the storage failed, or another run uses
       the work directory; start all processes again (also after 134, an abort by JAX)
  2    wrong arguments, settings or input
  1    failed: any other error
"""

import argparse
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tupe_jax.utils.errors import STOPPED_EXIT_CODE
from tupe_jax.utils.paths import Path, storage_path

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tupe_jax.config.schema import Config
    from tupe_jax.distributed.process_group import ProcessGroup
    from tupe_jax.run.preemption import StopSignal
    from tupe_jax.run.watchdog import Watchdog


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", default="quickstart", help="file or name (default quickstart)")
    parser.add_argument(
        "--workdir",
        type=storage_path,
        help="folder of the run (default: runs/<name of the config>)",
    )
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0")
    parser.add_argument("--processes", type=int, metavar="N", help="number of processes")
    parser.add_argument("--process", type=int, metavar="I", help="index of this process, from 0")
    parser.add_argument(
        "--token",
        help="any text, the same in all processes: connections with another one are dropped "
        "(default: the variable TUPE_TOKEN, or the job of SLURM or Open MPI)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long to wait for the other processes (default 300)",
    )


def run(arguments: argparse.Namespace) -> int:
    from tupe_jax.config.loading import from_config_dict, load_config
    from tupe_jax.distributed.initialize import ProcessFlags, find_process, join, start_jax
    from tupe_jax.distributed.process_group import SINGLE_PROCESS
    from tupe_jax.run.preemption import StopBeforeTraining, StopSignal
    from tupe_jax.run.watchdog import Watchdog
    from tupe_jax.utils.host_memory import keep_freed_memory
    from tupe_jax.utils.object_storage import storage_errors

    keep_freed_memory()
    config = from_config_dict(load_config(arguments.config, arguments.overrides))
    workdir = arguments.workdir or storage_path(f"runs/{_name(arguments.config)}")
    flags = ProcessFlags(
        arguments.coordinator, arguments.processes, arguments.process, arguments.token
    )
    with StopSignal(config.watchdog.stop_seconds) as stop:
        try:
            process = find_process(flags, arguments.wait)
            processes = join(process, arguments.wait, config.watchdog.silence_seconds)
        except StopBeforeTraining:
            return _stopped_before_training(SINGLE_PROCESS)
        stop.abandon = processes.abandon
        with processes:
            try:
                with Watchdog(config.watchdog, processes) as watchdog, storage_errors():
                    stop.is_saving = lambda: watchdog.activity == "saving"
                    start_jax(process, config.watchdog.jax_heartbeat_seconds)
                    return _run(config, workdir, stop, processes, watchdog)
            except StopBeforeTraining:
                return _stopped_before_training(processes)


def _run(
    config: "Config",
    workdir: Path,
    stop: "StopSignal",
    processes: "ProcessGroup",
    watchdog: "Watchdog",
) -> int:
    from tupe_jax.checkpointing.manager import FOLDER as CHECKPOINTS
    from tupe_jax.run.resume_checks import settings
    from tupe_jax.run.versions import package_versions
    from tupe_jax.run.workdir import hold, open_workdir
    from tupe_jax.training.dataset import check_given_data, has_tokenizer
    from tupe_jax.utils.object_storage import check_reachable

    processes.require_same("versions and settings", {**package_versions(), **settings(config)})
    check_reachable(workdir)
    begun = has_tokenizer(workdir) or (workdir / CHECKPOINTS).exists()
    processes.first("the given data", lambda: check_given_data(config, resumes=begun))
    open_workdir(workdir, processes)
    with hold(workdir, processes):
        return _run_alone(config, workdir, stop, processes, watchdog)


def _run_alone(
    config: "Config",
    workdir: Path,
    stop: "StopSignal",
    processes: "ProcessGroup",
    watchdog: "Watchdog",
) -> int:
    from tupe_jax.training.loop import pretrain

    outcome = pretrain(config, workdir, stop, processes, watchdog)
    if not outcome.finished:
        logger.info("stopped at step %d, saved; the same command resumes", outcome.step)
        return STOPPED_EXIT_CODE

    def summary() -> None:
        from tupe_jax.checkpointing.manager import load_for_use
        from tupe_jax.objectives.registry import exported_models
        from tupe_jax.training.summary import summarise

        if outcome.resumed_from == outcome.step:
            logger.info(
                "finished already: %d steps; for more, train in a new --workdir", outcome.step
            )
        shown = outcome
        if processes.count > 1:  # no process holds all weights; the last checkpoint does
            _, _, params = load_for_use(workdir)
            shown = replace(outcome, exported=exported_models(config, params))
        print(summarise(shown, workdir))

    with watchdog.during("summarizing"):
        processes.first("the summary", summary, 60 * config.watchdog.checkpoint_minutes)
    return 0


def _stopped_before_training(processes: "ProcessGroup") -> int:
    logger.info("stopped before training began; the same command starts again")
    if processes.count > 1:
        processes.abandon("received a stop request before training began", STOPPED_EXIT_CODE)
    return STOPPED_EXIT_CODE


def _name(config: str) -> str:
    """The name of a config: quickstart, or tupe_r-tiny for configs/tupe_r.py:tiny."""
    file, _, form = config.partition(":")
    return f"{Path(file).stem}-{form}" if form else Path(file).stem

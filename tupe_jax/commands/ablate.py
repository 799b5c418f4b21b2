"""Run a study: pre-train, fine-tune and measure several variants with several seeds.

  tupe ablate --config=ablations/paper_table:tiny --workdir=runs/paper_table
  tupe ablate --config=ablations/positions --config.seeds=0,1
  tupe ablate --config=ablations/paper_table --workdir=/shared/table --shard=0/4

A study is a config file. It lists variants, seeds, learning rates, the settings that all runs
share, the tasks to fine-tune on, and the measurements. With several learning rates, each variant is
tuned on the first seed. The work directory gets a record of every run. After each run the command
updates a table (table.md, table.csv), a report with plots (report.html) and the loss curves
(loss.png).

After a kill, the same command resumes; it never repeats a finished run. SIGTERM or Ctrl-C saves a
checkpoint first and exits with code 75. To divide the runs among machines, use --shard=0/4 to 3/4,
in one work directory or in several that are merged later; the command without --shard then runs
what is missing. Exit code 76: the shard needs learning rates that another shard has not found yet.
"""

import argparse
import logging
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tupe_jax.utils.errors import UserError

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tupe_jax.ablation.config import AblationConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="config of the study: file or name")
    parser.add_argument("--workdir", type=Path, help="default: runs/<name of the config>")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="run shard I of N")


def run(arguments: argparse.Namespace) -> int:
    from tupe_jax.ablation.config import ablation_config
    from tupe_jax.ablation.run_one import compiled_once, open_study
    from tupe_jax.ablation.scheduler import begin, run_shard
    from tupe_jax.config.loading import load_config
    from tupe_jax.distributed.process_group import SINGLE_PROCESS
    from tupe_jax.finetune.glue.protocol import Shard
    from tupe_jax.run.preemption import STOPPED_EXIT_CODE, StopBeforeTraining, StopSignal
    from tupe_jax.run.workdir import open_workdir
    from tupe_jax.utils.host_memory import keep_freed_memory

    if arguments.config is None:
        raise UserError("--config is missing: name a study, such as --config=ablations/paper_table")
    keep_freed_memory()
    shard = Shard.parse(arguments.shard)
    _refuse_settings_of_runs(arguments.overrides)
    config = ablation_config(load_config(arguments.config, arguments.overrides))
    workdir = arguments.workdir or Path("runs") / Path(arguments.config.partition(":")[0]).stem
    open_workdir(workdir, SINGLE_PROCESS)
    begin(config, workdir)
    named = [f"--config={arguments.config}", f"--workdir={workdir}"]
    command = shlex.join(["tupe", "ablate", *named, *arguments.overrides])
    with StopSignal() as stop, compiled_once():
        try:
            finished = run_shard(
                config,
                workdir,
                shard,
                lambda: open_study(config, workdir, stop),
                stop,
                after_run=lambda: _write(config, workdir, command),
            )
        except StopBeforeTraining:
            finished = False
    if not finished:
        logger.info("stopped; the same command resumes")
        return STOPPED_EXIT_CODE
    print(_write(config, workdir, command))
    return 0


def _refuse_settings_of_runs(overrides: Sequence[str]) -> None:
    """Refuse settings that each run sets itself: an override would have no effect."""
    from tupe_jax.config.schema import ENCODING

    own = {
        "--config.pretrain.optimizer.peak_learning_rate": "--config.learning_rates=...",
        **{f"--config.pretrain.position.{name}": "the study's variants" for name in ENCODING},
    }
    for override in overrides:
        instead = own.get(override.partition("=")[0])
        if instead is not None:
            raise UserError(f"{override}: each run of a study sets it; change {instead} instead")


def _write(config: "AblationConfig", workdir: Path, command: str) -> str:
    """Write tables, report and plot of the finished runs, and return the table."""
    from tupe_jax.utils.files import exclusive_lock

    with exclusive_lock(workdir / "report.lock"):  # otherwise an older table may be written last
        return _write_files(config, workdir, command)


def _write_files(config: "AblationConfig", workdir: Path, command: str) -> str:
    from tupe_jax.ablation.collect import collect
    from tupe_jax.ablation.finished import Finished
    from tupe_jax.ablation.report.plots import loss_picture
    from tupe_jax.ablation.report.report import html_report
    from tupe_jax.ablation.table import csv_table, markdown
    from tupe_jax.utils.files import atomic_file

    collected = collect(config, workdir)
    table = markdown(collected)
    texts = {
        "table.md": table + "\n",
        "table.csv": csv_table(collected),
        "report.html": html_report(collected, command),
    }
    for file, text in texts.items():
        with atomic_file(workdir / file) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    finished = Finished.of(collected)
    curves = finished.each(lambda record: record.validation or None)
    if curves:
        loss_picture(curves, finished.looks, workdir / "loss.png")
    return table

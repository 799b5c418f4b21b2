"""Run a study: pre-train, fine-tune and measure several variants with several seeds.

  tupe ablate --config=ablations/paper_table:tiny --workdir=runs/paper_table
  tupe ablate --config=ablations/positions --config.seeds=1,2
  tupe ablate --config=ablations/paper_table --workdir=/shared/table --shard=0/4
  tupe ablate --config=ablations/gain:tiny --workdir=runs/gain --records=docs/records/gain --report
  tupe ablate --report                                         docs/atlas.html of docs/records

A study is a config file: variants, seeds, learning rates, the settings that all runs share, the
tasks to fine-tune on, and the measurements. With several learning rates each variant is tuned on
the first seed, or on tuning_seed, which is not reported. The work directory gets a record of every
run. After each run a table (table.md, table.csv), a report with plots (report.html) and a plot of
the loss curves (loss.png) are updated. A study may compare objectives; losses of different
objectives are then shown separately.

After a kill the same command resumes and never repeats a finished run; SIGTERM or Ctrl-C saves a
checkpoint and exits with code 75. Machines divide the work by --shard=0/4 .. 3/4, in one work
directory or in several that are copied into one; the command without --shard then completes what is
missing. Exit code 76: a shard waits for learning rates that another shard has not tuned yet.

--records keeps the finished runs as small JSON files for a repository. In a new work directory the
study continues from them: it reads the files when it starts and repeats none of their runs.
--report executes nothing and only writes tables and reports; without --config it writes one page
about all studies in the folder --records.
"""

import argparse
import logging
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tupe_jax.utils.errors import STOPPED_EXIT_CODE, UserError
from tupe_jax.utils.paths import Path, storage_path

logger = logging.getLogger(__name__)

RECORDS, ATLAS = Path("docs/records"), Path("docs/atlas.html")

if TYPE_CHECKING:
    from tupe_jax.ablation.results import StudyRecords


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="the study: file or name, such as ablations/paper_table")
    parser.add_argument("--workdir", type=storage_path, help="default: runs/<name of the study>")
    parser.add_argument(
        "--records",
        type=storage_path,
        metavar="FOLDER",
        help=f"also keep small files of the finished runs here, and continue from those that are "
        f"there; without --config: the folder of all studies (default: {RECORDS})",
    )
    parser.add_argument("--report", action="store_true", help="execute nothing, only report")
    parser.add_argument(
        "--out", type=storage_path, help=f"the page about all studies (default: {ATLAS})"
    )
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="execute part I of N")


def run(arguments: argparse.Namespace) -> int:
    from tupe_jax.ablation.archive import open_archive
    from tupe_jax.ablation.config import ablation_config
    from tupe_jax.ablation.results import StudyRecords
    from tupe_jax.ablation.run_one import open_study
    from tupe_jax.ablation.scheduler import begin, run_shard
    from tupe_jax.config.loading import load_config
    from tupe_jax.distributed.process_group import SINGLE_PROCESS
    from tupe_jax.run.compilation_cache import compilation_cache
    from tupe_jax.run.preemption import StopBeforeTraining, StopSignal
    from tupe_jax.run.shard import WorkShard
    from tupe_jax.run.workdir import open_workdir
    from tupe_jax.utils.host_memory import keep_freed_memory

    if arguments.config is None and arguments.report:
        return _write_atlas(arguments.records or RECORDS, arguments.out or ATLAS)
    if arguments.config is None:
        raise UserError("give the study, such as --config=ablations/paper_table")
    if arguments.out is not None:
        raise UserError("--out needs --report and no --config: it names the page about all studies")
    keep_freed_memory()
    shard = WorkShard.parse(arguments.shard)
    _refuse_settings_of_runs(arguments.overrides)
    config = ablation_config(load_config(arguments.config, arguments.overrides))
    workdir = arguments.workdir or Path("runs") / Path(arguments.config.partition(":")[0]).stem
    open_workdir(workdir, SINGLE_PROCESS)
    begin(config, workdir)
    archived = open_archive(config, arguments.records) if arguments.records else None
    records = StudyRecords(config, workdir, archived)
    named = [f"--config={arguments.config}", f"--workdir={workdir}"]
    command = shlex.join(["tupe", "ablate", *named, *arguments.overrides])
    if arguments.report:
        print(_write(records, command, arguments.records))
        return 0

    def after_run() -> None:
        keep_compiled()
        _write(records, command, arguments.records)

    # The seeds of a variant share most of their programs.
    cache = compilation_cache(workdir, enabled=config.pretrain.train.compilation_cache)
    with StopSignal() as stop, cache as keep_compiled:
        try:
            finished = run_shard(
                records,
                shard,
                lambda: open_study(records, stop),
                stop,
                after_run,
            )
        except StopBeforeTraining:
            finished = False
    if not finished:
        logger.info("stopped; the same command resumes")
        return STOPPED_EXIT_CODE
    print(_write(records, command, arguments.records))
    return 0


def _write_atlas(folder: Path, page: Path) -> int:
    """Write the page about all archived studies in a folder, and the table of each."""
    from tupe_jax.ablation.archive import STUDY_FILE, ArchivedRecords
    from tupe_jax.ablation.atlas.correlations import correlation_table
    from tupe_jax.ablation.atlas.page import atlas_page, study_data
    from tupe_jax.ablation.table import markdown
    from tupe_jax.utils.files import atomic_file
    from tupe_jax.utils.paths import glob_in

    files = sorted(glob_in(folder, f"*/{STUDY_FILE}"))
    if not files:
        raise UserError(f"{folder}: no study here; `tupe ablate --config=... --records` writes one")
    archives = {file.parent.name: ArchivedRecords(file.parent) for file in files}
    studies = {name: archived.collect() for name, archived in archives.items()}
    data = {name: study_data(name, archives[name].command, studies) for name in studies}
    texts = {page: atlas_page(list(data.values()))}
    for name, results in studies.items():
        lines = [markdown(results), "", *correlation_table(data[name]["correlations"])]
        texts[folder / name / "table.md"] = "\n".join(lines).rstrip() + "\n"
    for target, text in texts.items():
        with atomic_file(target) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    print(f"{page}: {', '.join(studies)}")
    return 0


def _refuse_settings_of_runs(overrides: Sequence[str]) -> None:
    """Reject settings that every run replaces with its own value."""
    from tupe_jax.config.schema import ENCODING

    own = {
        "--config.pretrain.optimizer.peak_learning_rate": "--config.learning_rates=...",
        **{f"--config.pretrain.position.{name}": "the study's variants" for name in ENCODING},
    }
    for override in overrides:
        setting = override.partition("=")[0]
        for name, instead in own.items():
            if setting == name or setting.startswith(f"{name}."):
                raise UserError(
                    f"{override} has no effect: every run of a study sets its own value; "
                    f"set {instead}"
                )


def _write(records: "StudyRecords", command: str, archive: Path | None) -> str:
    """Write the table, the report and the plot of all finished runs, and return the table."""
    from tupe_jax.ablation.archive import write_archive
    from tupe_jax.utils.files import exclusive_lock

    # Without the lock a shard could overwrite a newer table with an older one.
    with exclusive_lock(records.workdir / "report.lock"):
        if archive is not None:
            write_archive(records, command, archive)
        return _write_locked(records, command)


def _write_locked(records: "StudyRecords", command: str) -> str:
    from tupe_jax.ablation.report.plots import FinishedRuns, loss_plot
    from tupe_jax.ablation.report.report import html_report
    from tupe_jax.ablation.table import csv_table, markdown
    from tupe_jax.utils.files import atomic_file

    results = records.collect()
    table = markdown(results)
    texts = {
        "table.md": table + "\n",
        "table.csv": csv_table(results),
        "report.html": html_report(results, command),
    }
    for file, text in texts.items():
        with atomic_file(records.workdir / file) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    finished = FinishedRuns.of(results)
    for number, objective in enumerate(results.config.objectives):
        of_objective = finished.of_objective(objective)
        curves = of_objective.each(lambda record: record.validation or None)
        if curves:
            file = f"loss_{objective}.png" if number else "loss.png"
            loss_plot(curves, finished.styles, records.workdir / file)
    return table

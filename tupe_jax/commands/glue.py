"""Fine-tune on all of GLUE with the paper's protocol, and print the results next to the paper's.

  tupe glue --checkpoint=runs/tupe_r --data_dir=glue
  tupe glue --checkpoint=runs/quickstart --config=glue:quick --config.tasks=builtin_sst,builtin_nli
  tupe glue --checkpoint=DIR --data_dir=glue --workdir=/shared/glue --shard=0/4
  tupe glue --report --workdir=/shared/glue

Each task is trained with every learning rate and every seed (the paper's 4 x 5). The table shows
the best learning rate by its median over seeds, and below it the spread over seeds. The files of
GLUE are read in their original layout from --data_dir, or from TFDS on disk; all missing files are
reported before training starts.

After a kill the same command resumes and never repeats a finished trial; SIGTERM or Ctrl-C saves a
checkpoint and exits with code 75. Machines divide the work by --shard=0/4 .. 3/4, in one work
directory or in several that are copied into one; --report prints the table of all finished trials.
The table is also written to table.md, table.csv and table.json.
"""

import argparse
import logging

from tupe_jax.utils.errors import STOPPED_EXIT_CODE, UserError
from tupe_jax.utils.paths import Path, storage_path

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", help="the model to start from, see `tupe finetune`")
    parser.add_argument(
        "--data_dir", type=storage_path, help="folder of GLUE's TSV files (else TFDS)"
    )
    parser.add_argument(
        "--workdir", type=storage_path, default=Path("runs/glue"), help="default runs/glue"
    )
    parser.add_argument("--config", default="glue", help="file or name (default glue)")
    parser.add_argument(
        "--vocabulary", type=storage_path, help="tokenizer of a model folder without one"
    )
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="train part I of N")
    parser.add_argument("--report", action="store_true", help="only print the table")


def run(arguments: argparse.Namespace) -> int:
    if arguments.report:
        if arguments.checkpoint or arguments.overrides:
            raise UserError("--report takes no --checkpoint and no config; leave them out")
    elif arguments.checkpoint is None:
        raise UserError("give the model as --checkpoint=DIR, or --report to print the table")
    elif not _train(arguments):
        return STOPPED_EXIT_CODE
    print(_report(arguments.workdir))
    return 0


def _train(arguments: argparse.Namespace) -> bool:
    """Finish the shard; False: stopped on request."""
    from tupe_jax.config.loading import load_config
    from tupe_jax.data.labelled.glue import TASKS
    from tupe_jax.distributed.process_group import SINGLE_PROCESS
    from tupe_jax.finetune.glue.protocol import GlueRecord, glue_config, run_protocol
    from tupe_jax.finetune.run import finetune
    from tupe_jax.finetune.tasks import open_task
    from tupe_jax.inference.loading import load
    from tupe_jax.run.compilation_cache import compilation_cache
    from tupe_jax.run.preemption import StopBeforeTraining, StopSignal
    from tupe_jax.run.shard import WorkShard
    from tupe_jax.run.workdir import open_workdir
    from tupe_jax.utils.host_memory import keep_freed_memory

    keep_freed_memory()
    shard, data_dir = WorkShard.parse(arguments.shard), arguments.data_dir
    config = glue_config(load_config(arguments.config, arguments.overrides))
    with StopSignal() as stop:
        try:
            pretrained = load(arguments.checkpoint, arguments.vocabulary)
            open_workdir(arguments.workdir, SINGLE_PROCESS)
            scratch = config.finetune.from_scratch
            record = GlueRecord(
                config,
                name=f"{arguments.checkpoint}{', from scratch' if scratch else ''}",
                step=None if scratch else pretrained.metadata.step,
                fingerprint=0 if scratch else pretrained.fingerprint,
            )
            with compilation_cache(arguments.workdir):
                finished = run_protocol(
                    record,
                    arguments.workdir,
                    shard,
                    lambda name: open_task(name, data_dir=data_dir if name in TASKS else None),
                    lambda task, trials, workdir: finetune(
                        config.finetune, pretrained, task, trials, workdir, stop
                    ),
                    stop,
                )
        except StopBeforeTraining:
            finished = False
    if not finished:
        logger.info("stopped; the same command resumes")
    return finished


def _report(workdir: Path) -> str:
    """The table of all finished trials, which is also written to the work directory."""
    import json

    from tupe_jax.distributed.process_group import SINGLE_PROCESS
    from tupe_jax.finetune.glue.protocol import collect, read_record
    from tupe_jax.finetune.glue.report import as_json, csv_table, make_report, markdown
    from tupe_jax.run.workdir import open_workdir
    from tupe_jax.utils.files import atomic_file

    record = read_record(workdir)
    planned = len(record.config.learning_rates) * len(record.config.seeds)
    report = make_report(record.name, record.step, collect(record.config, workdir), planned)
    table = markdown(report)
    open_workdir(workdir, SINGLE_PROCESS)
    for file, text in (
        ("table.md", table + "\n"),
        ("table.csv", csv_table(report)),
        ("table.json", json.dumps(as_json(report), indent=2) + "\n"),
    ):
        with atomic_file(workdir / file) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return table

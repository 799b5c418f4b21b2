"""Record a start of a run; refuse it if the previous starts made no progress. For launchers.

  tupe check-progress runs/tupe_r --job=1234 --retries=3

The scripts in launch/ call it before every start of `tupe pretrain`, once for all processes.
Progress is a newer complete checkpoint in the work directory. After the first start, and after each
newer checkpoint, a job may restart `--retries` times; then the exit code is 2, and the launcher
gives up. After any other exit code (76: the storage failed) the launcher repeats the check. The
starts are recorded in `starts.jsonl` of the work directory. A new `--job` counts from zero.
"""

import argparse
import datetime
import logging

from tupe_jax.utils.errors import UserError, writing_failed
from tupe_jax.utils.paths import storage_path

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workdir", type=storage_path, help="--workdir of tupe pretrain")
    parser.add_argument("--job", required=True, help="id that the job keeps when it is restarted")
    parser.add_argument(
        "--retries",
        type=int,
        default=3,
        metavar="N",
        help="restarts in a row without a newer checkpoint (default 3)",
    )


def run(arguments: argparse.Namespace) -> int:
    from tupe_jax.checkpointing.manager import newest_step
    from tupe_jax.run.starts import Start, read_starts, record_starts, starts_without_progress
    from tupe_jax.utils.object_storage import check_reachable, storage_errors

    if arguments.retries < 0:
        raise UserError(f"--retries={arguments.retries} must not be negative")
    workdir = arguments.workdir
    check_reachable(workdir)
    try:
        with storage_errors():
            newest = newest_step(workdir)
            starts = read_starts(workdir)
        without_progress = starts_without_progress(starts, arguments.job, newest)
        at = (
            "there is no checkpoint"
            if newest is None
            else f"the newest checkpoint is step {newest}"
        )
        if without_progress > arguments.retries:
            raise UserError(
                f"{arguments.workdir}: {without_progress} starts of job {arguments.job} made no "
                f"progress: {at}. Read the log of the run; a new job starts it again"
            )
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with storage_errors():
            record_starts(workdir, [*starts, Start(arguments.job, now, newest)])
    except OSError as error:
        raise writing_failed(
            f"cannot record a start in {arguments.workdir}: {error}", error
        ) from error
    logger.info(
        "start %d of at most %d without progress; %s",
        *(without_progress + 1, arguments.retries + 1, at),
    )
    return 0

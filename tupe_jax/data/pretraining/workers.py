"""Run jobs in worker processes, with progress reports and without orphan processes."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from tupe_jax.utils.errors import UserError

Job = TypeVar("Job")
# A job calls it with the amount of work done since the last call.
Report = Callable[[int], None]
# Called with the number of finished jobs and the total amount of work done.
Show = Callable[[int, int], None]

_REFRESH_SECONDS = 0.5
# The work counter and the stop event, which all workers share. Set when a worker starts.
_shared: tuple[Any, Any] | None = None


def run(
    workers: int, function: Callable[[Job, Report], None], jobs: Sequence[Job], show: Show
) -> None:
    """Call `function(job, report)` for all jobs, in any order.

    `show` is called from time to time. The first error stops all jobs and is raised here. With one
    worker, the jobs run in this process, which saves starting another.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        _run_here(function, jobs, show)
        return
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    counter, stop = context.Value("q", 0), context.Event()
    with ProcessPoolExecutor(
        max_workers=workers,
        mp_context=context,
        initializer=_start_worker,
        initargs=(counter, stop),
    ) as executor:
        waiting = {executor.submit(_run_there, function, job) for job in jobs}
        try:
            while waiting:
                done, waiting = wait(waiting, _REFRESH_SECONDS, FIRST_COMPLETED)
                for future in done:
                    future.result()
                show(len(jobs) - len(waiting), counter.value)
        except BrokenProcessPool:
            raise UserError(
                "a worker process died, probably out of memory; run the same command again with "
                "fewer --workers (finished shards are kept)"
            ) from None
        finally:
            stop.set()
            executor.shutdown(cancel_futures=True)


def _run_here(function: Callable[[Job, Report], None], jobs: Sequence[Job], show: Show) -> None:
    total = 0
    for finished, job in enumerate(jobs):

        def report(amount: int, finished: int = finished) -> None:
            nonlocal total
            total += amount
            show(finished, total)

        function(job, report)
        show(finished + 1, total)


def _start_worker(counter: Any, stop: Any) -> None:
    global _shared
    _shared = counter, stop
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exit when the parent is killed, because a new command may write to the same folder."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_there(function: Callable[[Job, Report], None], job: Job) -> None:
    assert _shared is not None, "the pool has started this process"
    counter, stop = _shared

    def report(amount: int) -> None:
        if stop.is_set():
            raise InterruptedError("another job has failed")
        with counter.get_lock():
            counter.value += amount

    function(job, report)

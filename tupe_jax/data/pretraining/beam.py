"""Run the jobs of `tupe prepare` on Apache Beam: `--runner=DaskRunner` and others.

A job needs nothing but the corpus and the output folder. So a stage is a pipeline of one step.
"""

import argparse
import logging
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tupe_jax.data.pretraining import workers
from tupe_jax.utils.errors import RetryError, UserError

_INSTALL = "pip install 'tupe_jax[beam]'"
# Runners put the text of a job's error between lines of their own, the source of `_run` among them.
_BEGIN, _END = "error of the job<", ">end of the error"
_ERROR = re.compile(f"{_BEGIN}([0-9]+) (.+?){_END}")
# Beam knows its other runners by their names alone.
_DASK_RUNNER = "apache_beam.runners.dask.dask_runner.DaskRunner"
# Work is in Python, so threads of one process would only share its interpreter and its memory.
_one_at_a_time = threading.Lock()


class _Noise(logging.Filter):
    """Drops what Beam logs needlessly: tracebacks of errors that are printed as one line at the
    end, and that packages for BigQuery are absent.
    """

    loggers = (
        "",
        "apache_beam.runners.common",
        "apache_beam.runners.worker.sdk_worker",
        "apache_beam.runners.portability.local_job_service",
    )

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return _BEGIN not in text and "bigquery client libraries" not in text


_noise = _Noise()


class BeamRunner:
    """Runs jobs by a runner of Beam, such as `DaskRunner`, with options of Beam, `--x=y`."""

    def __init__(self, name: str, options: Sequence[str]):
        for logger_name in _Noise.loggers:
            logging.getLogger(logger_name).addFilter(_noise)
        try:
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions
            from apache_beam.runners.runner import create_runner
        except ImportError:
            raise UserError(f"--runner={name} needs Apache Beam: {_INSTALL}") from None
        self._name = name
        is_dask = name.lower() in ("dask", "daskrunner")  # Beam, too, ignores case and "runner"
        try:
            # This imports the runner's module, which defines its options.
            self._runner = create_runner(_DASK_RUNNER if is_dask else name)
        except ValueError:
            raise UserError(
                f"--runner={name}: not a runner of Beam; set DirectRunner, DaskRunner, "
                "DataflowRunner or another one, or the full name of its class"
            ) from None
        except (ImportError, AttributeError) as error:
            raise UserError(f"--runner={name}: {error}") from None
        _check_options(name, options)
        self._options = PipelineOptions([*options, *_better_defaults(name, options)])
        self._beam = beam

    def __call__(
        self,
        function: Callable[[Any, workers.Report], None],
        jobs: Sequence[Any],
        show: workers.Show,
    ) -> None:
        """Run a function for all jobs. The first error ends the pipeline and is raised here."""
        if not jobs:
            return
        beam = self._beam
        try:
            pipeline = beam.Pipeline(runner=self._runner, options=self._options)
        except ValueError as error:
            raise UserError(f"--runner={self._name}: {' '.join(str(error).split())}") from None
        pipeline | beam.Create(jobs) | beam.Reshuffle() | "job" >> beam.Map(_run, function)
        try:
            result = pipeline.run()
            try:
                result.wait_until_finish()
            finally:
                if client := getattr(result, "client", None):
                    client.close()  # Dask's; its local cluster would go on
        except Exception as error:
            if found := _ERROR.search(str(error)):
                error_type = RetryError if int(found[1]) == RetryError.exit_code else UserError
                raise error_type(found[2]) from None
            raise
        show(len(jobs), 0)


def _run(job: Any, function: Callable[[Any, workers.Report], None]) -> None:
    try:
        with _one_at_a_time:
            function(job, lambda amount: None)
    except UserError as error:
        raise RuntimeError(f"{_BEGIN}{error.exit_code} {error}{_END}") from None


def _check_options(name: str, options: Sequence[str]) -> None:
    """Parse all options as Beam does. Raise if it does not know one, which it would ignore."""
    from apache_beam.options.pipeline_options import PipelineOptions

    def refuse(message: str) -> NoReturn:
        raise UserError(f"--runner={name}: {message}; `tupe prepare --help` lists our own options")

    def parse(parser: argparse.ArgumentParser) -> None:
        parser.error = refuse  # type: ignore[method-assign]
        parser.parse_args(options)

    PipelineOptions([]).get_all_options(add_extra_args_fn=parse)


def _better_defaults(name: str, options: Sequence[str]) -> list[str]:
    """Options of Beam that suit few long jobs."""
    given = {option.partition("=")[0] for option in options}
    if "dask" in name.lower() and not given & {"--dask_npartitions", "--dask_partition_size"}:
        return ["--dask_partition_size=1"]  # its default is 128 jobs on one worker
    if "direct" in name.lower():
        # Says that the pipeline does not suit Prism, which would run everything in one process.
        return ["--allow_unsafe_triggers"]
    return []

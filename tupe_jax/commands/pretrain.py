"""Train a model on text, or go on where a run stopped.

  tupe pretrain
  tupe pretrain --config=tupe_r:tiny --workdir=runs/tupe_r --config.train.steps=1000

Without arguments: the quick start, a small TUPE-R on the built-in corpus, in a few minutes.
A config is a file or the name of a shipped one, with `:form`; any of its settings can be set as
--config.section.key=value. Vocabulary and rows are made in the work directory if the config names
none. The same command goes on from the newest checkpoint; SIGTERM or Ctrl-C saves first and exits
with code 75.
"""

import argparse
import sys
from pathlib import Path

from tupe_jax.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", default="quickstart", help="file or name (default quickstart)")
    parser.add_argument(
        "--workdir", type=Path, help="where the run lives (default: runs/<name of the config>)"
    )


def run(arguments: argparse.Namespace) -> int:
    from tupe_jax.config_files import load_config
    from tupe_jax.recipes import from_config_dict
    from tupe_jax.training.stop_signal import STOPPED_EXIT_CODE, StopBeforeTraining, StopSignal

    config = from_config_dict(load_config(arguments.config, arguments.overrides))
    workdir = arguments.workdir or Path("runs") / _name(arguments.config)
    with StopSignal() as stop:
        try:
            _make_writable(workdir)
            from tupe_jax.training.loop import pretrain

            outcome = pretrain(config, workdir, stop)
        except StopBeforeTraining:
            print("stopped before training began; the same command starts again", file=sys.stderr)
            return STOPPED_EXIT_CODE
        if not outcome.finished:
            print(
                f"stopped at step {outcome.step}, saved; the same command goes on", file=sys.stderr
            )
            return STOPPED_EXIT_CODE
        from tupe_jax.training.summary import summarise

        if outcome.went_on_from == outcome.step:
            print(f"finished already: {outcome.step} steps; for more, train in a new --workdir")
        print(summarise(outcome, workdir))
    return 0


def _name(config: str) -> str:
    """quickstart, or tupe_r-tiny of configs/tupe_r.py:tiny."""
    file, _, form = config.partition(":")
    return f"{Path(file).stem}-{form}" if form else Path(file).stem


def _make_writable(workdir: Path) -> None:
    """Fail before the work, not after it."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        probe = workdir / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write to {workdir}: {error.strerror}; choose another --workdir"
        ) from error

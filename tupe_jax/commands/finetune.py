"""Fine-tune a model on a task, or resume an unfinished run.

  tupe finetune --checkpoint=runs/quickstart --task=builtin_nli --config=finetune:quick
  tupe finetune --checkpoint=runs/tupe_r --task=cola --data_dir=glue
  tupe finetune --checkpoint=runs/tupe_r --task=rte --learning_rates=2e-5,5e-5 --seeds=0,1,2,3,4
  tupe finetune --checkpoint=DIR --task=mine/train.tsv --dev=mine/dev.tsv --columns=text,label

The checkpoint is a work directory of `tupe pretrain`, one of its checkpoints, or a model folder.
Tasks: GLUE (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli) and snli from TSV files in
--data_dir or from TFDS on disk; builtin_cola, builtin_sst, builtin_paraphrase, builtin_nli; your
own TSV file. Every learning rate is combined with every seed; on accelerators many trials run in
one program. The default is the TUPE paper's recipe; --config=finetune:quick is for small models.

The work directory gets, for each trial, result.json, predictions in GLUE's submission format and
the model of the best evaluation. After a kill the same command resumes exactly: no number changes.
SIGTERM or Ctrl-C saves a checkpoint and exits with code 75.
"""

import argparse
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tupe_jax.utils.errors import STOPPED_EXIT_CODE
from tupe_jax.utils.paths import Path, storage_path

logger = logging.getLogger(__name__)

Number = TypeVar("Number", int, float)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tupe_jax.finetune.results import Evaluation, TrialResult
    from tupe_jax.finetune.tasks import FinetuneTask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", required=True, help="the model to start from")
    parser.add_argument("--task", required=True, help="a task's name, or your own training file")
    parser.add_argument("--config", default="finetune", help="file or name (default finetune)")
    parser.add_argument("--workdir", type=storage_path, help="default: runs/finetune-<task>")
    parser.add_argument(
        "--learning_rates", type=_floats, metavar="A,B,..", help="default: the config's peak"
    )
    parser.add_argument("--seeds", type=_ints, default=[0], metavar="A,B,..", help="default: 0")
    parser.add_argument(
        "--vocabulary", type=storage_path, help="tokenizer of a model folder without one"
    )
    parser.add_argument(
        "--data_dir", type=storage_path, help="folder with the TSV files of GLUE or SNLI"
    )
    parser.add_argument("--train", type=storage_path, help="training file, if it has another name")
    parser.add_argument(
        "--dev",
        type=storage_path,
        action="append",
        default=[],
        help="dev file, if it has another name",
    )
    parser.add_argument("--columns", help="of your own file: text,label or text1,text2,label")
    parser.add_argument(
        "--regression", action="store_true", help="the labels of your own file are scores"
    )
    parser.add_argument("--train_examples", type=int, help="size of a built-in task; default: 4000")
    parser.add_argument("--dev_examples", type=int, help="size of a built-in task; default: 1000")


def run(arguments: argparse.Namespace) -> int:
    from tupe_jax.config.loading import FINETUNING, load_config, require_kind
    from tupe_jax.config.validation import from_mapping
    from tupe_jax.distributed.process_group import SINGLE_PROCESS
    from tupe_jax.finetune.config import FinetuneConfig
    from tupe_jax.finetune.results import trials_of
    from tupe_jax.finetune.run import finetune
    from tupe_jax.finetune.tasks import open_task
    from tupe_jax.inference.loading import load
    from tupe_jax.run.compilation_cache import compilation_cache
    from tupe_jax.run.preemption import StopBeforeTraining, StopSignal
    from tupe_jax.run.workdir import open_workdir
    from tupe_jax.utils.host_memory import keep_freed_memory

    keep_freed_memory()
    values = load_config(arguments.config, arguments.overrides)
    require_kind(values, FINETUNING)
    config = from_mapping(FinetuneConfig, values, "config")
    trials = trials_of(
        arguments.learning_rates or [config.optimizer.peak_learning_rate], arguments.seeds
    )
    with StopSignal() as stop:
        try:
            pretrained = load(arguments.checkpoint, arguments.vocabulary)
            task = open_task(
                arguments.task,
                data_dir=arguments.data_dir,
                train=arguments.train,
                dev=arguments.dev,
                columns=arguments.columns,
                regression=arguments.regression,
                train_examples=arguments.train_examples,
                dev_examples=arguments.dev_examples,
            )
            workdir = arguments.workdir or Path("runs") / f"finetune-{task.name}"
            open_workdir(workdir, SINGLE_PROCESS)
            with compilation_cache(workdir):
                results = finetune(config, pretrained, task, trials, workdir, stop)
        except StopBeforeTraining:
            logger.info("stopped before training started; run the same command again")
            return STOPPED_EXIT_CODE
    if results is None:
        logger.info("stopped, checkpoint saved; the same command resumes")
        return STOPPED_EXIT_CODE
    print(_table(task, results))
    return 0


def _floats(text: str) -> list[float]:
    return _numbers(text, float, "numbers separated by commas, such as 2e-5,5e-5")


def _ints(text: str) -> list[int]:
    return _numbers(text, int, "integers separated by commas, such as 0,1,2")


def _numbers(text: str, kind: Callable[[str], Number], expected: str) -> list[Number]:
    try:
        return [kind(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be {expected}") from None


def _table(task: "FinetuneTask", results: "Sequence[TrialResult]") -> str:
    """The best and the last evaluation of every trial, on every split."""

    def scores(evaluation: "Evaluation") -> str:
        return ", ".join(
            f"{split} {metric} {value:.4f}"
            for split, of_split in evaluation.scores.items()
            for metric, value in of_split.items()
        )

    lines = [
        f"{task.name}, {result.trial.name}:\n"
        f"  best, epoch {result.best.epoch:g}: {scores(result.best)}\n"
        f"  last, epoch {result.last.epoch:g}: {scores(result.last)}"
        for result in results
    ]
    return "\n".join(lines)

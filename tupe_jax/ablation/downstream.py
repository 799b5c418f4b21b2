"""Fine-tuning of one run on every task of the study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tupe_jax.ablation.config import AblationConfig, DownstreamConfig
from tupe_jax.ablation.record import TaskScore
from tupe_jax.data.labelled.glue import TASKS
from tupe_jax.finetune.glue.aggregation import Moment, RateScore, task_score
from tupe_jax.finetune.run import finetune
from tupe_jax.finetune.tasks import FinetuneTask, open_task
from tupe_jax.finetune.trial import Trial, TrialResult, trials_of
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.run.preemption import Stop

Tasks = Mapping[str, FinetuneTask]


def open_tasks(config: DownstreamConfig) -> Tasks:
    """All tasks of a study: what is missing of them should not wait for the pre-training."""
    data_dir = Path(config.data_dir) if config.data_dir else None
    return {
        name: open_task(
            name,
            data_dir=data_dir if name in TASKS else None,
            train_examples=None if name in TASKS else config.train_examples,
            dev_examples=None if name in TASKS else config.dev_examples,
        )
        for name in config.tasks
    }


@dataclass(frozen=True)
class Tuned:
    """What came of a run on a task, and where a model that did so is."""

    score: TaskScore
    folder: Path


def finetune_all(
    config: AblationConfig, pretrained: TrainedModel, tasks: Tasks, folder: Path, stop: Stop
) -> dict[str, Tuned] | None:
    """The results by task; None: stopped on request."""
    found = {}
    trials = trials_of(config.downstream.learning_rates, config.downstream.seeds)
    for name, task in tasks.items():
        probed = name == config.measure.probe_task  # probes need the weights
        settings = config.downstream.finetune
        settings = replace(settings, keep_weights=settings.keep_weights or probed)
        results = finetune(settings, pretrained, task, trials, folder / name, stop)
        if results is None:
            return None
        found[name] = _tuned(task, results, folder / name)
    return found


def _tuned(task: FinetuneTask, results: Sequence[TrialResult], folder: Path) -> Tuned:
    """The paper's protocol: the learning rate whose median over seeds is best."""
    split, metric = task.chosen_by

    def reported(moment: Moment) -> RateScore:
        score = task_score(results, metric, moment, len(results)).reported(split)
        assert score is not None, "every trial has a score"
        return score

    best, last = reported(lambda r: r.best), reported(lambda r: r.last)
    first = Trial(best.learning_rate, next(iter(best.by_seed)))
    return Tuned(TaskScore(metric, best.median, last.median), folder / first.name)

"""Fine-tuning of one run on every task of the study."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tupe_jax.ablation.config import AblationConfig, DownstreamConfig
from tupe_jax.ablation.record import TaskScore
from tupe_jax.data.glue import TASKS
from tupe_jax.finetune.run import finetune
from tupe_jax.finetune.scores import Moment, task_score
from tupe_jax.finetune.task import FinetuneTask, open_task
from tupe_jax.finetune.trial import TrialResult, trials_of
from tupe_jax.pretrained import Pretrained
from tupe_jax.training.agreed_stop import Stop

Tasks = Mapping[str, FinetuneTask]


def open_tasks(config: DownstreamConfig) -> Tasks:
    """All tasks of a study: what is missing of them should not wait for the pre-training."""
    data_dir = Path(config.data_dir) if config.data_dir else None
    return {
        name: open_task(
            name,
            data_dir=data_dir if name in TASKS else None,
            train_examples=config.train_examples,
            dev_examples=config.dev_examples,
        )
        for name in config.tasks
    }


def finetune_all(
    config: AblationConfig, pretrained: Pretrained, tasks: Tasks, folder: Path, stop: Stop
) -> dict[str, TaskScore] | None:
    """The scores by task; None: stopped on request."""
    scores = {}
    trials = trials_of(config.downstream.learning_rates, config.downstream.seeds)
    for name, task in tasks.items():
        probed = name == config.measure.probe_task  # probes need the weights
        settings = config.downstream.finetune
        settings = replace(settings, keep_weights=settings.keep_weights or probed)
        results = finetune(settings, pretrained, task, trials, folder / name, stop)
        if results is None:
            return None
        scores[name] = _score(task, results)
    return scores


def _score(task: FinetuneTask, results: list[TrialResult]) -> TaskScore:
    """The paper's protocol: the learning rate whose median over seeds is best."""
    split, metric = task.chosen_by

    def median(moment: Moment) -> float:
        reported = task_score(results, metric, moment, len(results)).reported(split)
        assert reported is not None
        return reported.median

    return TaskScore(metric, best=median(lambda r: r.best), last=median(lambda r: r.last))

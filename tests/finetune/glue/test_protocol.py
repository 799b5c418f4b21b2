"""The protocol: no trial twice, shards that divide it, work directories that are merged.

The trainer is a stand-in that writes results at once.
"""

import json
import shutil

import pytest

from tests.finetune.results import result
from tupe_jax.config.loading import load_config
from tupe_jax.data.labelled.example import Example
from tupe_jax.finetune.config import FinetuneConfig, GlueConfig
from tupe_jax.finetune.glue.protocol import (
    GlueRecord,
    collect,
    glue_config,
    plan,
    read_record,
    run_protocol,
)
from tupe_jax.finetune.results import write_result
from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.run.resume_checks import CONFIG_FILE
from tupe_jax.run.shard import WorkShard
from tupe_jax.utils.errors import UserError

CONFIG = GlueConfig(tasks=("cola", "rte", "wnli"), learning_rates=(1e-3, 2e-3), seeds=(0, 1, 2))
RECORD = GlueRecord(CONFIG, name="mine", step=7, fingerprint=1)


class Stop:
    has_state = True
    requested = False


class Trainer:
    """Writes a result for each unfinished trial, until `trials_left` are used up."""

    def __init__(self, trials_left=10**6):
        self.trials_left = trials_left
        self.opened = []
        self.trained = []

    def open_task(self, name):
        self.opened.append(name)
        examples = [Example("a", None, 0)]
        return FinetuneTask(name, ("0", "1"), ("accuracy",), examples, {"dev": examples})

    def train(self, task, trials, workdir):
        results = []
        for trial in trials:
            folder = workdir / trial.name
            if not (folder / "result.json").exists():
                if not self.trials_left:
                    return None
                self.trials_left -= 1
                folder.mkdir(parents=True)
                (workdir / CONFIG_FILE).write_text("{}")
                score = trial.seed / 10 + trial.learning_rate
                of_trial = result(trial.learning_rate, trial.seed, {"dev": score}, "accuracy")
                write_result(of_trial, workdir)
                self.trained.append((task.name, trial))
            results.append(trial)
        return results

    def run(self, workdir, shard="0/1", record=RECORD, stop=None):
        shard = WorkShard.parse(shard)
        return run_protocol(record, workdir, shard, self.open_task, self.train, stop or Stop())


def finished(workdir, config=CONFIG):
    return {task: len(results) for task, results in collect(config, workdir).items()}


def test_every_task_with_every_rate_and_seed(tmp_path):
    trainer = Trainer()
    assert trainer.run(tmp_path)
    assert len(set(trainer.trained)) == len(trainer.trained) == 18
    assert finished(tmp_path) == {"cola": 6, "rte": 6, "wnli": 6}


def test_all_tasks_are_opened_before_the_first_is_trained_on(tmp_path):
    trainer = Trainer()

    def open_task(name):
        if name == "wnli":
            raise UserError("wnli: no dev.tsv")
        return trainer.open_task(name)

    with pytest.raises(UserError, match=r"dev\.tsv"):
        run_protocol(RECORD, tmp_path, WorkShard(), open_task, trainer.train, Stop())
    assert trainer.trained == []


def test_finished_trials_are_never_repeated(tmp_path):
    first = Trainer(trials_left=8)
    assert not first.run(tmp_path)
    assert finished(tmp_path) == {"cola": 6, "rte": 2, "wnli": 0}
    second = Trainer()
    assert second.run(tmp_path)
    assert second.opened == ["rte", "wnli"]
    assert not set(first.trained) & set(second.trained)
    assert len(first.trained) + len(second.trained) == 18
    third = Trainer()
    assert third.run(tmp_path)
    assert third.opened == []


def test_an_unfinished_group_resumes_with_the_same_trials(tmp_path):
    """A group of trials that trains in one program is found again by its trials."""
    Trainer(trials_left=2).run(tmp_path)
    asked = []

    def train(task, trials, workdir):
        asked.append(len(trials))

    run_protocol(RECORD, tmp_path, WorkShard(), Trainer().open_task, train, Stop())
    assert asked == [6]


def test_a_stop_between_tasks(tmp_path):
    stop, trainer = Stop(), Trainer()

    def train(task, trials, workdir):
        stop.requested = True
        return trainer.train(task, trials, workdir)

    assert not run_protocol(RECORD, tmp_path, WorkShard(), trainer.open_task, train, stop)
    assert finished(tmp_path) == {"cola": 6, "rte": 0, "wnli": 0}


@pytest.mark.parametrize("count", [1, 2, 4, 7, 18, 30])
def test_shards_divide_the_trials_evenly(count):
    shares = [plan(CONFIG, WorkShard(index, count)) for index in range(count)]
    cells = [(task, trial) for share in shares for task in share for trial in share[task]]
    assert len(set(cells)) == len(cells) == 18
    assert set(cells) == {(task, t) for task, trials in plan(CONFIG).items() for t in trials}
    sizes = [sum(map(len, share.values())) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    for task in CONFIG.tasks:
        of_task = [len(share.get(task, [])) for share in shares]
        assert max(of_task) - min(of_task) <= 1


def test_shards_in_one_work_directory(tmp_path):
    for shard in ("0/2", "1/2"):
        assert Trainer().run(tmp_path, shard)
    assert finished(tmp_path) == {"cola": 6, "rte": 6, "wnli": 6}
    assert read_record(tmp_path) == RECORD
    whole = Trainer()
    assert whole.run(tmp_path)
    assert whole.trained == []


def test_work_directories_of_several_machines_are_copied_together(tmp_path):
    for shard, machine in (("0/2", "a"), ("1/2", "b")):
        assert Trainer().run(tmp_path / machine, shard)
        shutil.copytree(tmp_path / machine, tmp_path / "both", dirs_exist_ok=True)
    assert finished(tmp_path / "a") == {"cola": 3, "rte": 3, "wnli": 3}
    assert finished(tmp_path / "both") == {"cola": 6, "rte": 6, "wnli": 6}


def test_the_rest_of_lost_shards_is_done_without_them(tmp_path):
    assert Trainer().run(tmp_path, "2/3")
    rest = Trainer()
    assert rest.run(tmp_path)
    assert len(rest.trained) == 12
    assert finished(tmp_path) == {"cola": 6, "rte": 6, "wnli": 6}


def test_shards_of_different_settings_do_not_make_a_table(tmp_path):
    for shard, epochs in (("0/2", 3), ("1/2", 5)):
        Trainer().run(tmp_path, shard)
        folder = WorkShard.parse(shard).folder(tmp_path) / "cola"
        (folder / CONFIG_FILE).write_text(json.dumps({"finetune": {"epochs": epochs}}))
    with pytest.raises(UserError, match=r"shard-1-of-2/cola .*epochs .*3.*5"):
        collect(CONFIG, tmp_path)


def test_shards_of_different_models_do_not_make_a_table(tmp_path):
    """Not even if they have no task in common."""
    cola, rte = (GlueConfig(tasks=(name,)) for name in ("cola", "rte"))
    assert Trainer().run(tmp_path, "0/2", record=GlueRecord(cola, "mine", 7, fingerprint=1))
    refused = r"shard-0-of-2 .*fingerprint was 1, now 2"
    other = Trainer()
    with pytest.raises(UserError, match=refused):
        other.run(tmp_path, record=GlueRecord(rte, "other", 7, fingerprint=2))
    assert other.trained == []
    assert Trainer().run(tmp_path / "other", record=GlueRecord(rte, "other", 7, fingerprint=2))
    shutil.copytree(tmp_path / "other", tmp_path, dirs_exist_ok=True)
    with pytest.raises(UserError, match=r"shard-0-of-2 .*fingerprint .*1.*2"):
        read_record(tmp_path)


def test_a_damaged_record_is_reported(tmp_path):
    Trainer().run(tmp_path)
    (tmp_path / CONFIG_FILE).write_text("{")
    with pytest.raises(UserError, match=r"config\.json"):
        read_record(tmp_path)


def test_one_error_names_what_all_tasks_miss(tmp_path):
    def open_task(name):
        raise UserError(f"{name} has no file")

    with pytest.raises(UserError, match=r"cola.*rte.*wnli"):
        run_protocol(RECORD, tmp_path, WorkShard(), open_task, Trainer().train, Stop())


def test_more_trials_may_be_added_but_no_other_settings(tmp_path):
    Trainer().run(tmp_path)
    more = GlueConfig(tasks=("cola", "mrpc"), learning_rates=(1e-3,), seeds=(0, 7))
    trainer = Trainer()
    assert trainer.run(tmp_path, record=GlueRecord(more, "mine", 7, 1))
    assert [(task, trial.seed) for task, trial in trainer.trained] == [
        ("cola", 7),
        ("mrpc", 0),
        ("mrpc", 7),
    ]
    assert finished(tmp_path, more) == {"cola": 2, "mrpc": 2}
    with pytest.raises(UserError, match=r"fingerprint .*1.*2"):
        Trainer().run(tmp_path, record=GlueRecord(CONFIG, "other", 7, fingerprint=2))
    longer = GlueConfig(tasks=("cola",), finetune=FinetuneConfig(epochs=99, keep_weights=False))
    with pytest.raises(UserError, match=r"config\.finetune\.epochs .*0.*99"):
        Trainer().run(tmp_path, record=GlueRecord(longer, "mine", 7, 1))


def test_settings_may_change_while_nothing_was_trained(tmp_path):
    trainer = Trainer()

    def fail(task, trials, workdir):
        raise UserError("config.finetune.epochs is wrong")

    with pytest.raises(UserError, match="is wrong"):
        run_protocol(RECORD, tmp_path, WorkShard(), trainer.open_task, fail, Stop())
    right = GlueConfig(tasks=("cola",), finetune=FinetuneConfig(epochs=1))
    assert trainer.run(tmp_path, record=GlueRecord(right, "mine", 7, 1))


def test_of_several_records_the_one_that_asks_for_most_is_reported(tmp_path):
    Trainer().run(tmp_path, record=GlueRecord(GlueConfig(tasks=("cola",)), "mine", 7, 1))
    every = GlueRecord(GlueConfig(), "mine", 7, 1)
    Trainer(0).run(tmp_path, "0/2", every)
    assert read_record(tmp_path) == every


def test_a_record_is_read_as_it_was_written(tmp_path):
    Trainer().run(tmp_path)
    assert read_record(tmp_path) == RECORD
    with pytest.raises(UserError, match=r"elsewhere: .*config\.json"):
        read_record(tmp_path / "elsewhere")


def test_tasks_are_written_with_commas():
    values = load_config("glue:quick", ["--config.tasks=cola,rte", "--config.seeds=0,1"])
    config = glue_config(values)
    assert (config.tasks, config.seeds) == (("cola", "rte"), (0, 1))
    with pytest.raises(UserError, match=r"config\.tasks 'colla' .*'cola'"):
        glue_config(load_config("glue", ["--config.tasks=colla"]))


def test_the_papers_grid():
    config = glue_config(load_config("glue"))
    assert config == GlueConfig()
    assert sum(map(len, plan(config).values())) == 8 * 4 * 5

"""Executing a study: no run is repeated, and foreign records are named."""

import json
import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ablation.studies import record_of, small_study
from tupe_jax.ablation import run_one
from tupe_jax.ablation.config import Variant
from tupe_jax.ablation.results import StudyRecords, write_record
from tupe_jax.ablation.scheduler import begin, run_shard
from tupe_jax.ablation.table import markdown
from tupe_jax.ablation.work_plan import RunKey, Unit
from tupe_jax.run.shard import ALL_WORK, WorkShard
from tupe_jax.training.loop import DivergedError
from tupe_jax.utils.errors import RetryError, UserError
from tupe_jax.utils.files import exclusive_lock

LOSSES = {
    ("bert_a", 1e-3): 3.5,
    ("bert_a", 1e-2): 4.0,
    ("tupe_a", 1e-3): 3.0,
    ("tupe_a", 1e-2): 2.5,
    ("T5", 1e-2): 4.5,
}


class Stop:
    has_state = True
    requested = False


class KilledError(Exception):
    pass


class Lab:
    """Does runs at once, remembers which, and can be killed in one."""

    def __init__(self, config, workdir, *, killed_after=math.inf):
        self.config, self.workdir = config, workdir
        self.killed_after = killed_after
        self.done = []

    def perform(self, key, is_tuning):
        if len(self.done) >= self.killed_after:
            raise KilledError
        self.done.append((key, is_tuning))
        (self.workdir / key.folder).mkdir(parents=True, exist_ok=True)
        loss = LOSSES[key.variant, key.learning_rate] + key.seed
        return record_of(self.config, key, loss=loss, is_tuning=is_tuning)

    def run(self, shard=ALL_WORK, stop=None):
        begin(self.config, self.workdir)
        return run_shard(
            StudyRecords(self.config, self.workdir),
            shard,
            lambda: self.perform,
            stop or Stop(),
            lambda: None,
        )

    def table(self):
        return markdown(StudyRecords(self.config, self.workdir).collect())


def test_the_rate_with_the_best_final_loss_is_used_for_all_seeds(tmp_path):
    lab = Lab(small_study(), tmp_path)
    assert lab.run()
    whole = [key for key, is_tuning in lab.done if not is_tuning]
    assert whole == [
        RunKey("bert_a", 0, 1e-3),
        RunKey("tupe_a", 0, 1e-2),
        RunKey("bert_a", 1, 1e-3),
        RunKey("tupe_a", 1, 1e-2),
    ]
    found = StudyRecords(lab.config, tmp_path).collect()
    assert not found.missing
    assert found.tuning["tupe_a"][1e-3].final_loss == 3.0
    assert [record.learning_rate for record in found.runs["tupe_a"].values()] == [1e-2, 1e-2]


def test_a_held_out_seed_chooses_the_rate_and_is_not_reported(tmp_path):
    lab = Lab(small_study(tuning_seed=7), tmp_path)
    assert lab.run()
    assert {(key.seed, is_tuning) for key, is_tuning in lab.done} == {
        (7, True),
        (0, False),
        (1, False),
    }
    found = StudyRecords(lab.config, tmp_path).collect()
    assert {record.seed for runs in found.tuning.values() for record in runs.values()} == {7}
    assert list(found.runs["tupe_a"]) == [0, 1]
    assert {record.learning_rate for record in found.runs["tupe_a"].values()} == {1e-2}
    assert "of seed 7 (not reported above)" in lab.table()


def test_a_variant_may_have_the_learning_rate_of_another(tmp_path):
    study = small_study()
    study = replace(
        study, variants=(*study.variants, Variant("T5", "t5", tuned_as="tupe_a")), tuning_seed=7
    )
    lab = Lab(study, tmp_path)
    assert lab.run()
    of_t5 = [(key.seed, key.learning_rate) for key, _ in lab.done if key.variant == "T5"]
    assert of_t5 == [(0, 1e-2), (1, 1e-2)]
    assert "\nNot tuned: T5 has that of tupe_a.\n" in lab.table()


def test_a_study_may_be_tuned_on_a_held_out_seed_later(tmp_path):
    assert Lab(small_study(), tmp_path).run()
    config = json.loads((tmp_path / "config.json").read_text())
    del config["tuning_seed"]  # as in the work directory of an earlier version
    (tmp_path / "config.json").write_text(json.dumps(config))
    lab = Lab(small_study(tuning_seed=7), tmp_path)
    assert lab.run()
    assert {key.seed for key, is_tuning in lab.done if is_tuning} == {7}


def test_a_single_rate_needs_no_tuning(tmp_path):
    lab = Lab(small_study(learning_rates=(1e-3,)), tmp_path)
    assert lab.run()
    assert [is_tuning for _, is_tuning in lab.done] == [False] * 4


@pytest.mark.parametrize("runs", [0, 3, 6])
def test_a_killed_study_resumes_to_the_same_table_and_repeats_nothing(tmp_path, runs):
    whole = Lab(small_study(), tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    assert whole.run()
    killed = Lab(small_study(), tmp_path / "killed", killed_after=runs)
    with pytest.raises(KilledError):
        killed.run()
    again = Lab(small_study(), tmp_path / "killed")
    assert again.run()
    assert killed.done + again.done == whole.done
    assert again.table() == whole.table()
    nothing = Lab(small_study(), tmp_path / "killed", killed_after=0)
    assert nothing.run()


def test_a_stop_on_request_ends_between_runs(tmp_path):
    lab = Lab(small_study(), tmp_path)
    stop = Stop()
    stop.requested = True
    assert not lab.run(stop=stop)
    assert not lab.done


def test_shards_in_one_folder_make_the_table_of_one_machine(tmp_path):
    config = small_study()
    whole, *shards = (Lab(config, tmp_path / name) for name in ("whole", "shared", "shared"))
    (tmp_path / "whole").mkdir()
    (tmp_path / "shared").mkdir()
    whole.run()
    for i, lab in enumerate(shards):
        assert lab.run(WorkShard(i, 2))
    assert set(shards[0].done + shards[1].done) == set(whole.done)
    assert not set(shards[0].done) & set(shards[1].done)
    assert shards[0].table() == whole.table()


def test_a_shard_names_what_it_waits_for(tmp_path):
    config = small_study(["bert_a"], seeds=(0, 1, 2))
    first, second = (Lab(config, tmp_path) for _ in range(2))
    with pytest.raises(RetryError) as error:
        second.run(WorkShard(1, 2))
    assert "not finished: bert_a, seed 0, learning rate 0.001." in str(error.value)
    assert "0.01" not in str(error.value)  # that one is done
    assert first.run(WorkShard(0, 2))
    assert second.run(WorkShard(1, 2))
    assert not StudyRecords(config, tmp_path).collect().missing


def test_missing_runs_are_listed(tmp_path):
    lab = Lab(small_study(), tmp_path, killed_after=6)
    with pytest.raises(KilledError):
        lab.run()
    found = StudyRecords(lab.config, tmp_path).collect()
    assert found.missing == (Unit("bert_a", 1), Unit("tupe_a", 1))
    assert "| 1* |" in markdown(found)
    assert "Unfinished runs: 2" in markdown(found)


def test_more_seeds_and_variants_may_come_later(tmp_path):
    Lab(small_study(["bert_a"], seeds=(0,)), tmp_path).run()
    more = Lab(small_study(["bert_a", "tupe_a"], seeds=(0, 1)), tmp_path)
    assert more.run()
    assert RunKey("bert_a", 0, 1e-3) not in [key for key, _ in more.done]
    assert not StudyRecords(more.config, tmp_path).collect().missing


def with_steps(config, steps):
    train = replace(config.pretrain.train, steps=steps)
    return replace(config, pretrain=replace(config.pretrain, train=train))


def test_settings_may_change_while_nothing_was_computed(tmp_path):
    begin(with_steps(small_study(), 7), tmp_path)
    assert Lab(small_study(), tmp_path).run()


def test_a_changed_setting_is_rejected_by_name(tmp_path):
    config = small_study()
    begin(config, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/vocabulary.model").touch()
    changed = with_steps(config, 9)
    with pytest.raises(UserError, match=r"pretrain\.train\.steps .*4.*9"):
        begin(changed, tmp_path)
    begin(config, tmp_path)


def test_a_variant_that_changed_since_its_run_is_rejected_by_name(tmp_path):
    Lab(small_study(["bert_a"]), tmp_path).run()
    config = small_study(["bert_a"])
    variant = replace(config.variants[0], settings={"model.num_layers": 2})
    with pytest.raises(UserError, match=r"record\.json .*num_layers .*1.*2"):
        Lab(replace(config, variants=(variant,)), tmp_path).run()


def test_a_record_in_the_wrong_folder_is_named(tmp_path):
    lab = Lab(small_study(), tmp_path)
    lab.run()
    moved = RunKey("bert_a", 1, 1e-3)
    write_record(record_of(lab.config, RunKey("tupe_a", 1, 1e-2)), tmp_path / moved.folder)
    with pytest.raises(UserError, match=r"seed1-lr0\.001/record\.json .*tupe_a, seed 1"):
        StudyRecords(lab.config, tmp_path).collect()


def test_a_record_of_other_text_is_named(tmp_path):
    lab = Lab(small_study(), tmp_path)
    lab.run()
    key = RunKey("bert_a", 1, 1e-3)
    write_record(record_of(lab.config, key, data="another"), tmp_path / key.folder)
    with pytest.raises(UserError, match=r"bert_a/seed1-lr0\.001"):
        StudyRecords(lab.config, tmp_path).collect()


def test_a_record_that_was_evaluated_on_other_examples_is_named(tmp_path):
    lab = Lab(small_study(), tmp_path)
    lab.run()
    key = RunKey("bert_a", 1, 1e-3)
    other = {"builtin_sst": "another"}
    write_record(record_of(lab.config, key, judged_on=other), tmp_path / key.folder)
    with pytest.raises(UserError, match=r"seed1-lr0\.001 .* builtin_sst .*seed0-lr0\.001"):
        StudyRecords(lab.config, tmp_path).collect()


def data_in(workdir):
    (workdir / "vocabulary.model").write_bytes(b"pieces")
    (workdir / "rows").mkdir()
    (workdir / "rows/index.json").write_text("{}")
    return run_one.SharedData(workdir / "vocabulary.model", workdir / "rows")


def test_records_of_other_text_are_named_before_any_training(tmp_path, monkeypatch):
    lab = Lab(small_study(), tmp_path, killed_after=1)
    with pytest.raises(KilledError):
        lab.run()
    data = data_in(tmp_path)
    monkeypatch.setattr(run_one, "make_shared_data", lambda config, workdir: data)
    with pytest.raises(UserError, match=r"seed0-lr0\.001 .*/rows"):
        run_one.open_study(StudyRecords(lab.config, tmp_path), Stop())
    monkeypatch.setattr(run_one.SharedData, "digest", lambda data: "the same")
    run_one.open_study(StudyRecords(lab.config, tmp_path), Stop())


def runner_in(workdir):
    return run_one.StudyRunner(
        StudyRecords(small_study(), workdir),
        data_in(workdir),
        tasks={},
        pairs=(),
        stop=Stop(),
    )


def test_a_run_is_done_by_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(run_one.StudyRunner, "_pretrain", lambda self, key: None)
    key = RunKey("bert_a", 0, 1e-3)
    runner = runner_in(tmp_path)
    assert runner(key, is_tuning=True) is None
    with (
        exclusive_lock(tmp_path / key.folder / run_one.LOCK_FILE),
        pytest.raises(UserError, match=r"bert_a/seed0-lr0\.001"),
    ):
        runner(key, is_tuning=True)


def test_an_archived_tuning_run_is_trained_again_when_it_is_to_be_measured(tmp_path, monkeypatch):
    config, key = small_study(), RunKey("bert_a", 0, 1e-3)
    tuning = record_of(config, key, is_tuning=True)
    trained = []
    monkeypatch.setattr(StudyRecords, "read", lambda self, key: tuning)
    monkeypatch.setattr(run_one.StudyRunner, "_pretrain", lambda self, key: trained.append(key))
    runner = runner_in(tmp_path)
    assert runner(key, is_tuning=True).validation == tuning.validation
    assert not trained
    runner(key, is_tuning=False)
    assert trained == [key]


def test_the_cpu_time_of_all_attempts_is_recorded(tmp_path, monkeypatch):
    seconds = iter([10, 17.5, 100, 102])
    monkeypatch.setattr(run_one.time, "process_time", lambda: next(seconds))
    key, record = RunKey("bert_a", 0, 1e-3), record_of(small_study(), RunKey("bert_a", 0, 1e-3))
    attempts = iter([None, record])  # stopped on request, then finished by another process
    monkeypatch.setattr(run_one.StudyRunner, "_run", lambda self, key, tuning: next(attempts))
    runner = runner_in(tmp_path)
    assert runner(key, is_tuning=False) is None
    assert runner(key, is_tuning=False).cpu_seconds == 9.5


def test_a_run_that_diverges_is_recorded_and_not_measured(tmp_path, monkeypatch):
    def diverge(config, folder, stop):
        (folder / "metrics.jsonl").write_text('{"step": 2, "valid_loss": 5.5}\n')
        raise DivergedError("loss was not finite")

    monkeypatch.setattr(run_one, "pretrain", diverge)
    record = runner_in(tmp_path)(RunKey("bert_a", 0, 1e-3), is_tuning=False)
    assert (record.diverged, record.validation) == (True, ((2, 5.5),))
    assert record.final_loss == math.inf
    assert not record.is_measured


def test_shards_that_begin_together_make_the_data_once_after_the_other(tmp_path, monkeypatch):
    at_work, most = 0, 0

    def make_dataset(config, workdir, saved):
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.05)
        at_work -= 1
        return Path("vocabulary.model")

    monkeypatch.setattr(run_one, "make_dataset", make_dataset)
    config = small_study().pretrain
    shards = [
        threading.Thread(target=run_one.make_shared_data, args=(config, tmp_path)) for _ in range(3)
    ]
    for shard in shards:
        shard.start()
    for shard in shards:
        shard.join()
    assert most == 1

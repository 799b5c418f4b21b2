"""Records are read back completely or not at all."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.ablation.studies import record_of, small_study
from tupe_jax.ablation import results
from tupe_jax.ablation.results import (
    MATRICES_FILE,
    RECORD_FILE,
    StudyRecords,
    digests,
    read_record,
    write_record,
)
from tupe_jax.ablation.work_plan import RunKey
from tupe_jax.finetune.tasks import open_task
from tupe_jax.lab.nli_pairs import builtin_pairs
from tupe_jax.utils.errors import UserError

CONFIG = small_study()
KEY = RunKey("tupe_a", 1, 1e-3)


def test_a_record_comes_back_as_it_was(tmp_path):
    record = record_of(CONFIG, KEY)
    write_record(record, tmp_path)
    found = read_record(tmp_path)
    # JSON has lists where the settings have tuples.
    settings = json.loads(json.dumps(record.settings))
    assert found == replace(record, settings=settings)
    np.testing.assert_array_equal(found.matrices_LxHxNxN, record.matrices_LxHxNxN)
    assert found.final_loss == 3.0
    assert found.is_measured


def test_a_tuning_run_has_a_curve_and_nothing_else(tmp_path):
    write_record(record_of(CONFIG, KEY, is_tuning=True), tmp_path)
    assert not (tmp_path / MATRICES_FILE).exists()
    found = read_record(tmp_path)
    assert found.validation == ((2, 4.0), (4, 3.0))
    assert not found.is_measured


def test_a_diverged_run_is_worse_than_any_other(tmp_path):
    validation = ((2, math.inf), (4, 3.0))
    write_record(
        record_of(CONFIG, KEY, is_tuning=True, diverged=True, validation=validation), tmp_path
    )
    assert "Infinity" not in (tmp_path / RECORD_FILE).read_text()
    found = read_record(tmp_path)
    assert found.validation == validation
    assert found.final_loss == math.inf


def test_where_nothing_is_finished_there_is_no_record(tmp_path):
    assert read_record(tmp_path) is None


def cut(file):
    file.write_bytes(file.read_bytes()[:-40])


def overwritten(file):
    content = bytearray(file.read_bytes())
    middle = len(content) // 3
    content[middle : middle + 20] = bytes(20)
    file.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / MATRICES_FILE).unlink(),
        lambda folder: (folder / RECORD_FILE).write_text("{"),
        lambda folder: (folder / RECORD_FILE).write_text("[]"),
        lambda folder: (folder / RECORD_FILE).write_text('{"variant": "tupe_a"}'),
        lambda folder: (folder / MATRICES_FILE).write_bytes(b"no archive"),
        lambda folder: (folder / MATRICES_FILE).write_bytes(b""),
        lambda folder: cut(folder / MATRICES_FILE),
        lambda folder: overwritten(folder / MATRICES_FILE),
    ],
)
def test_a_damaged_record_is_named(tmp_path, damage):
    write_record(record_of(CONFIG, KEY), tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=r"record\.json"):
        read_record(tmp_path)


def test_one_word_of_one_example_is_another_data_set():
    task = open_task("builtin_cola", train_examples=4, dev_examples=4)
    pairs = builtin_pairs("test", 2)
    before = digests({"cola": task}, pairs)
    assert before == digests({"cola": replace(task)}, list(pairs))
    changed = replace(task.train[2], sentence1=f"{task.train[2].sentence1} Indeed.")
    after = digests({"cola": replace(task, train=[*task.train[:2], changed, task.train[3]])}, pairs)
    assert after["probes"] == before["probes"]
    assert after["cola"] != before["cola"]
    assert digests({}, pairs[:1]) != {"probes": before["probes"]}
    assert digests({}, []) == {}


def test_digests_are_those_of_existing_records():
    """A study resumes only if its records have the digests of the examples on disk."""
    tasks = {
        name: open_task(name, train_examples=4, dev_examples=4)
        for name in ("builtin_cola", "builtin_nli")
    }
    assert digests(tasks, builtin_pairs("test", 2)) == {
        "builtin_cola": "77dc86c7811ae7fa",
        "builtin_nli": "448e533a357784af",
        "probes": "1db77d1468792e78",
    }


def test_a_record_is_read_again_only_when_it_has_changed(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(
        results, "read_record", lambda folder: read.append(folder) or read_record(folder)
    )
    records, folder = StudyRecords(CONFIG, tmp_path), tmp_path / KEY.folder
    assert records.read(KEY) is None
    folder.mkdir(parents=True)
    write_record(record_of(CONFIG, KEY, is_tuning=True), folder)
    assert not records.read(KEY).is_measured
    assert records.read(KEY) is records.read(KEY)
    assert read == [folder]
    write_record(record_of(CONFIG, KEY), folder)
    assert records.read(KEY).is_measured
    assert read == [folder, folder]

"""A study in small files: everything a report needs comes back."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.ablation.invented import collected_of, study_config
from tupe_jax.ablation.archive import STUDY_FILE, ArchivedRecords, open_archive, write_archive
from tupe_jax.ablation.config import Variant
from tupe_jax.ablation.results import StudyRecords, write_record
from tupe_jax.ablation.table import csv_table, markdown
from tupe_jax.utils.errors import UserError

CONFIG = replace(study_config(learning_rates=(2e-3, 1e-3), seeds=(1, 2)), tuning_seed=0)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    for record in collected_of(CONFIG, missing=1).records:
        (folder / record.key.folder).mkdir(parents=True, exist_ok=True)
        write_record(record, folder / record.key.folder)
    return folder


@pytest.fixture(scope="module")
def archive(workdir):
    folder = workdir / "archive"
    write_archive(StudyRecords(CONFIG, workdir), "tupe ablate --config=c", folder)
    return folder


def test_all_tables_are_those_of_the_work_directory(workdir, archive):
    there, found = StudyRecords(CONFIG, workdir).collect(), ArchivedRecords(archive).collect()
    assert found.config == CONFIG
    assert markdown(found) == markdown(there)
    assert csv_table(found) == csv_table(there)
    assert ArchivedRecords(archive).command == "tupe ablate --config=c"


def test_one_run_of_each_variant_keeps_its_matrices(workdir, archive):
    there, found = StudyRecords(CONFIG, workdir).collect(), ArchivedRecords(archive).collect()
    for name, runs in found.runs.items():
        assert [seed for seed, run in runs.items() if run.matrices_LxHxNxN is not None] == [1]
        kept = runs[1].matrices_LxHxNxN
        original = there.runs[name][1].matrices_LxHxNxN
        uniform = 1 / original.shape[-1]
        visible = original > uniform / 200  # smaller weights are all alike
        np.testing.assert_allclose(kept[visible], original[visible], rtol=2 ** (1 / 32) - 1 + 1e-6)
        assert (kept[~visible] < uniform / 190).all()


def test_archiving_again_changes_nothing(workdir, archive, tmp_path):
    before = {file: file.read_bytes() for file in archive.glob("**/*.json")}
    write_archive(StudyRecords(CONFIG, workdir), "tupe ablate --config=c", archive)
    assert before == {file: file.read_bytes() for file in archive.glob("**/*.json")}
    assert len(before) == 1 + len(collected_of(CONFIG, missing=1).records)
    assert max(map(len, before.values())) < 20_000


@pytest.mark.parametrize("text", ["{", "{}"])
def test_a_damaged_file_is_named(workdir, tmp_path, text):
    write_archive(StudyRecords(CONFIG, workdir), "c", tmp_path)
    (tmp_path / STUDY_FILE).write_text(text)
    with pytest.raises(UserError, match=r"study\.json"):
        ArchivedRecords(tmp_path)


def test_a_damaged_run_is_named(workdir, tmp_path):
    write_archive(StudyRecords(CONFIG, workdir), "c", tmp_path)
    file = tmp_path / "TUPE-A/seed1-lr0.002.json"
    file.write_text(json.dumps({"variant": "TUPE-A"}))
    with pytest.raises(UserError, match=r"TUPE-A/seed1"):
        ArchivedRecords(tmp_path)


def test_settings_of_variants_come_back(workdir, tmp_path):
    variants = (replace(CONFIG.variants[1], settings={"position.options.t5_gain": 8.0}),)
    config = replace(CONFIG, variants=variants)
    write_archive(StudyRecords(config, tmp_path), "c", tmp_path / "archive")
    assert ArchivedRecords(tmp_path / "archive").config == config


def test_a_new_work_directory_continues_from_the_archive(workdir, archive, tmp_path):
    """The archive then holds the same bytes as that of a study on one machine."""
    records = StudyRecords(CONFIG, tmp_path / "new", open_archive(CONFIG, archive))
    (missing,) = records.collect().missing
    everything = collected_of(CONFIG).records
    last = next(r for r in everything if r.key == records.key_of(missing))
    write_record_in(last, records.workdir)
    write_archive(records, "c", tmp_path / "continued")
    for record in everything:
        write_record_in(record, tmp_path / "whole")
    write_archive(StudyRecords(CONFIG, tmp_path / "whole"), "c", tmp_path / "uninterrupted")
    continued, uninterrupted = (
        {file.relative_to(folder): file.read_bytes() for file in folder.glob("**/*.json")}
        for folder in (tmp_path / "continued", tmp_path / "uninterrupted")
    )
    assert len(continued) == 1 + len(everything)
    assert continued == uninterrupted


def write_record_in(record, workdir):
    folder = workdir / record.key.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_record(record, folder)


def test_archived_runs_of_other_settings_are_named(archive, tmp_path):
    train = replace(CONFIG.pretrain.train, steps=901)
    config = replace(CONFIG, pretrain=replace(CONFIG.pretrain, train=train))
    records = StudyRecords(config, tmp_path, open_archive(config, archive))
    with pytest.raises(UserError, match=r"BERT-A/seed0-lr.*\.json .*train\.steps .*900.*901"):
        records.collect()


def test_the_archive_of_another_study_is_not_overwritten(archive):
    config = replace(CONFIG, variants=(*CONFIG.variants[:5], Variant("T5", "t5")))
    with pytest.raises(UserError, match=r"archive .*TUPE-R"):
        open_archive(config, archive)


def test_the_objective_of_a_variant_comes_back(tmp_path):
    """Otherwise losses of two objectives would stand in one column."""
    electra = Variant("RTD", "bert_a", {"objective.name": "replaced_token"})
    config = study_config((CONFIG.variants[0], electra), seeds=(0,))
    for record in collected_of(config).records:
        write_record_in(record, tmp_path)
    there = StudyRecords(config, tmp_path)
    write_archive(there, "c", tmp_path / "archive")
    assert markdown(ArchivedRecords(tmp_path / "archive").collect()) == markdown(there.collect())
    found = ArchivedRecords(tmp_path / "archive").collect().records
    assert [record.objective for record in found] == ["masked_lm", "replaced_token"]


def test_a_run_of_no_variant_is_named(workdir, tmp_path):
    write_archive(StudyRecords(CONFIG, workdir), "c", tmp_path)
    values = json.loads((tmp_path / "TUPE-A/seed1-lr0.002.json").read_text())
    file = tmp_path / "TUPE-A/seed2-lr0.002.json"
    file.write_text(json.dumps(values | {"variant": "TUPE-B"}))
    with pytest.raises(UserError, match=r"TUPE-A/seed2.*TUPE-B"):
        ArchivedRecords(tmp_path)

"""`tupe ablate`, from the config file to the table."""

import csv
import json
from dataclasses import replace

import pytest

from tests.ablation.studies import PIECES
from tupe_jax import cli
from tupe_jax.ablation.results import read_record

STUDY = """
from dataclasses import replace

from tests.ablation.studies import small_study
from tupe_jax.ablation.config import Variant, study


def get_config():
    config = small_study(seeds=(0,), learning_rates=(1e-2,))
    finetune = replace(config.downstream.finetune, length=96)
    return study(
        replace(
            config,
            variants=(
                Variant("one", "tupe_a"),
                Variant("same", "tupe_a", {"checkpoint.keep": 2}),  # nothing is compiled twice
            ),
            downstream=replace(config.downstream, tasks=("builtin_nli",), finetune=finetune),
            measure=replace(config.measure, probe_task="builtin_nli", probe_pairs=30),
        )
    )
"""


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "small.py"
    file.write_text(STUDY)
    return file


@pytest.fixture(scope="module")
def finished(config_file, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("study") / "small"
    for shard in ("0/2", "1/2"):
        command = ["ablate", f"--config={config_file}", f"--workdir={workdir}", f"--shard={shard}"]
        assert cli.main(command) == 0
    return workdir


@pytest.mark.slow
def test_every_run_leaves_all_that_was_measured(finished):
    for variant in ("one", "same"):
        record = read_record(finished / "runs" / variant / "seed0-lr0.01")
        assert [step for step, _ in record.validation] == [2, 4]
        assert 4 < record.final_loss < 7  # log 300 is 5.7
        assert record.parameters > PIECES * 16
        assert record.judged_on.keys() == {"builtin_nli", "probes"}
        assert record.matrices_LxHxNxN.shape == (1, 2, 12, 12)
        assert [len(heads) for heads in record.by_head["locality"]] == [2]
        assert record.scores["builtin_nli"].metric == "accuracy"
        assert {"Random", "Shuffle-SR"} <= record.probes.keys()
        assert record.pairs["all"].pairs == 2


@pytest.mark.slow
def test_the_same_variant_under_two_names_has_the_same_numbers(finished):
    one, same = (read_record(finished / "runs" / v / "seed0-lr0.01") for v in ("one", "same"))
    assert replace(one, variant="same", settings=same.settings) == same


@pytest.mark.slow
def test_tokenizer_and_data_are_made_once_for_all_runs(finished):
    assert (finished / "data/vocabulary.model").exists()
    assert (finished / "data/rows/index.json").exists()
    assert not list(finished.glob("runs/*/*/pretrain/data"))


@pytest.mark.slow
def test_table_and_csv_have_a_line_for_each(finished):
    lines = (finished / "table.md").read_text().split("\n")
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["one", "same"]
    assert "Unfinished" not in "".join(lines)
    with (finished / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["variant"], row["seed"]) for row in rows] == [("one", "0"), ("same", "0")]


@pytest.mark.slow
def test_the_report_shows_what_was_measured(finished):
    page = (finished / "report.html").read_text()
    for words in ("one", "same", "builtin_nli", "Shuffle-SR", "tupe ablate --config="):
        assert words in page


@pytest.mark.slow
def test_the_report_shows_all_that_was_measured_and_how_it_was_run(finished, config_file):
    page = (finished / "report.html").read_text()
    for section in ("loss", "convergence", "heads", "structure", "probes", "pairs"):
        assert f'<section id="{section}">' in page
    assert f"tupe ablate --config={config_file} --workdir={finished}" in page
    assert (finished / "loss.png").read_bytes().startswith(b"\x89PNG")


def without_cpu_time(folder):
    return json.loads((folder / "record.json").read_text()) | {"cpu_seconds": None}


@pytest.mark.slow
def test_killed_before_its_record_a_run_is_measured_again_but_not_trained(
    finished, config_file, capsys
):
    folder = finished / "runs/one/seed0-lr0.01"
    trained = ["pretrain/checkpoints/4", "finetune/builtin_nli/lr0.0005-seed0/result.json"]
    times = [(folder / name).stat().st_mtime_ns for name in trained]
    record, table = without_cpu_time(folder), (finished / "table.md").read_text()
    (folder / "record.json").unlink()
    (finished / "table.md").unlink()
    assert cli.main(["ablate", f"--config={config_file}", f"--workdir={finished}"]) == 0
    assert capsys.readouterr().out == table
    assert (finished / "table.md").read_text() == table
    assert without_cpu_time(folder) == record
    assert [(folder / name).stat().st_mtime_ns for name in trained] == times


@pytest.mark.slow
def test_a_new_work_directory_repeats_no_archived_run(finished, config_file, tmp_path, capsys):
    command = ["ablate", f"--config={config_file}", f"--records={tmp_path / 'records'}"]
    assert cli.main([*command, f"--workdir={finished}", "--report"]) == 0
    table = capsys.readouterr().out
    assert cli.main([*command, f"--workdir={tmp_path / 'new'}"]) == 0
    assert capsys.readouterr().out == table
    assert not (tmp_path / "new/runs").exists()


@pytest.mark.slow
def test_other_settings_are_rejected_in_one_line(finished, config_file, capsys):
    command = ["ablate", f"--config={config_file}", f"--workdir={finished}"]
    code = cli.main([*command, "--config.pretrain.train.steps=5"])
    assert code == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert "pretrain.train.steps was 4, now 5" in error
    assert error.count("\n") == 1
    saved = json.loads((finished / "config.json").read_text())
    assert saved["pretrain"]["train"]["steps"] == 4


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ("pretrain.optimizer.peak_learning_rate=5e-4", "learning_rates"),
        ("pretrain.position.relative=t5", "the study's variants"),
    ],
)
def test_settings_of_single_runs_are_refused(setting, instead, tmp_path, capsys):
    command = ["ablate", "--config=ablations/paper_table", f"--workdir={tmp_path / 'w'}"]
    assert cli.main([*command, f"--config.{setting}"]) == 2
    assert instead in capsys.readouterr().err
    assert not (tmp_path / "w").exists()


def test_a_study_is_not_started_by_accident(capsys):
    assert cli.main(["ablate"]) == 2
    assert "such as --config=ablations/paper_table" in capsys.readouterr().err

"""The page about all studies: its numbers, from files that are each read once."""

import json
import re
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.ablation.invented import collected_of, study_config
from tupe_jax import cli
from tupe_jax.ablation import archive
from tupe_jax.ablation.archive import ArchivedRecords, write_archive
from tupe_jax.ablation.atlas.correlations import comparable_with, correlations
from tupe_jax.ablation.atlas.page import study_data
from tupe_jax.ablation.config import Variant
from tupe_jax.ablation.results import Records
from tupe_jax.ablation.table import columns_of
from tupe_jax.lab.length_extrapolation import LengthScore

DOCS = Path(__file__).parents[3] / "docs"
CONFIG = replace(study_config(learning_rates=(2e-3, 1e-3), seeds=(1, 2, 3)), tuning_seed=0)
LENGTHS = tuple(
    LengthScore(length, rule, loss, {"locality": 0.25, "symmetry": 1.0, "mirror_symmetry": 1.0})
    for length, rule, loss in [(64, "as_is", 2.0), (128, "interpolated", 3.0)]
)


class Invented(Records):
    """Records that no file holds."""

    def __init__(self, config, folder, **missing):
        super().__init__(config, folder)
        self._records = {
            record.key: replace(record, cpu_seconds=60.0, lengths=LENGTHS)
            for record in collected_of(config, **missing).records
        }

    def read(self, key):
        return self._records.get(key)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Two studies; one of them is not finished, and one of its runs diverged."""
    folder = tmp_path_factory.mktemp("records")
    write_archive(Invented(CONFIG, folder), "tupe ablate --config=a", folder / "first")
    unfinished = Invented(CONFIG, folder, missing=2, diverged=[("TUPE-A", 1)])
    write_archive(unfinished, "tupe ablate --config=</script>", folder / "second")
    return folder


@pytest.fixture(scope="module")
def page(records):
    out = records / "atlas.html"
    assert cli.main(["ablate", "--report", f"--records={records}", f"--out={out}"]) == 0
    return out.read_text(encoding="utf-8")


def data_of(page):
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def test_the_page_holds_the_numbers_of_the_tables(page, records):
    first, second = data_of(page)
    assert (first["name"], second["name"]) == ("first", "second")
    assert (first["runs"], first["tuningRuns"], first["missing"]) == (18, 12, 0)
    assert second["missing"] == 2
    assert first["cpuHours"] == 0.5
    results = ArchivedRecords(records / "first").collect()
    for variant in first["variants"]:
        losses = [record.final_loss for record in results.runs[variant["name"]].values()]
        assert variant["values"][0]["mean"] == pytest.approx(np.mean(losses), rel=1e-4)
        assert variant["values"][0]["sd"] == pytest.approx(np.std(losses, ddof=1), rel=1e-3)
        assert variant["curve"]["low"] <= variant["curve"]["mean"] <= variant["curve"]["high"]
        assert [point["loss"]["mean"] for point in variant["lengths"]] == [2, 3]
        assert variant["lengths"][1]["locality"] == {"mean": 0.25, "low": 0.25, "high": 0.25}
    diverged = next(v for v in second["variants"] if v["name"] == "TUPE-A")
    assert diverged["diverged"] == 1
    assert diverged["values"][0]["n"] == diverged["seeds"] - 1


def test_the_page_needs_nothing_else(page):
    assert not re.search(r'(src|href)="|url\(|@import|fetch\(', page)
    assert page.count("</script>") == 2
    assert "--config=<\\/script>" in page


def test_the_same_records_give_the_same_bytes(page, records):
    again = records / "again.html"
    assert cli.main(["ablate", "--report", f"--records={records}", f"--out={again}"]) == 0
    assert again.read_text(encoding="utf-8") == page
    assert (records / "first/table.md").read_text().startswith("| variant")


@pytest.mark.skipif(not (DOCS / "records").exists(), reason="no records are committed")
def test_committed_records_give_the_committed_page_and_tables(tmp_path):
    records, out = tmp_path / "records", tmp_path / "atlas.html"
    shutil.copytree(DOCS / "records", records, ignore=shutil.ignore_patterns("table.md"))
    assert cli.main(["ablate", "--report", f"--records={records}", f"--out={out}"]) == 0
    assert out.read_bytes() == (DOCS / "atlas.html").read_bytes()
    for committed in (DOCS / "records").glob("*/table.md"):
        table = records / committed.parent.name / "table.md"
        assert table.read_bytes() == committed.read_bytes()


def test_correlations_are_over_variants(page):
    everything = data_of(page)[0]["correlations"]
    found = [c for c in everything if not c["over"]]
    assert {c["measure"] for c in found} == {"locality", "symmetry", "mirror symmetry of heads"}
    assert all(c["variants"] == 6 and len(c["points"]) == 18 for c in found)
    assert {(c["within"]["families"], c["within"]["variants"]) for c in found} == {(1, 4)}
    low, high = next(c["interval"] for c in found if c["interval"])
    assert -1 <= low < high <= 1


def test_the_table_of_a_study_has_the_correlations_of_the_page(page, records):
    lines = (records / "first/table.md").read_text().split("\n")
    for found in data_of(page)[0]["correlations"]:
        studies = ", ".join(found["over"]) or "this one"
        start = f"| {found['measure']} | {found['score']} | {studies} | 6 | {found['rho']:.2f} |"
        (line,) = (line for line in lines if line.startswith(start))
        assert line.endswith("| 4 of 1 |")
        if found["interval"] and found["within"]["interval"]:
            for low, high in (found["interval"], found["within"]["interval"]):
                assert f"| {low:.2f} to {high:.2f} |" in line


def test_only_studies_that_were_done_alike_are_compared(tmp_path):
    def study(**changes):
        return Invented(replace(CONFIG, **changes), tmp_path).collect()

    grid = tuple(Variant(f"w{n}", "attenuated") for n in range(3))
    longer = replace(CONFIG.pretrain, train=replace(CONFIG.pretrain.train, steps=901))
    studies = {
        "six": study(),
        "grid": study(variants=grid, seeds=(1,)),
        "long": study(pretrain=longer),
    }
    assert list(comparable_with("six", studies)) == ["six", "grid"]
    assert comparable_with("long", studies) == {}
    both = study_data("grid", "c", studies)["correlations"]
    pooled = [c for c in both if c["over"] == ["grid", "six"]]
    assert {(c["variants"], len(c["points"])) for c in pooled} == {(9, 21)}
    assert {c["within"]["families"] for c in pooled} == {2}


def test_variants_of_one_name_are_pooled_only_if_they_are_alike(tmp_path):
    other = Variant("TUPE-A", "tupe_a", {"position.options.untied_gain": 8.0})
    studies = {
        "six": Invented(CONFIG, tmp_path).collect(),
        "two": Invented(replace(CONFIG, variants=(other, CONFIG.variants[5])), tmp_path).collect(),
        "three": Invented(replace(CONFIG, variants=(other,)), tmp_path).collect(),
    }
    loss = columns_of(studies["six"])[:1]
    found, *_ = correlations(comparable_with("six", studies), loss)
    assert found["variants"] == 7
    runs = Counter(name for name, _, _ in found["points"])
    assert (runs["TUPE-A"], runs["TUPE-A of two"], runs["TUPE-R"]) == (3, 6, 6)


def test_a_hundred_runs_take_seconds_and_every_file_is_read_once(tmp_path, monkeypatch):
    variants = [Variant(f"v{n}", "tupe_r") for n in range(25)]
    config = replace(CONFIG, variants=tuple(variants), learning_rates=(1e-3,), seeds=(1, 2, 3, 4))
    write_archive(Invented(replace(config, tuning_seed=-1), tmp_path), "c", tmp_path / "large")
    read, read_json = [], archive._read_json
    monkeypatch.setattr(archive, "_read_json", lambda file: read.append(file) or read_json(file))
    begun = time.process_time()
    out = tmp_path / "atlas.html"
    assert cli.main(["ablate", "--report", f"--records={tmp_path}", f"--out={out}"]) == 0
    assert time.process_time() - begun < 10
    assert len(read) == len(set(read)) == 1 + 100
    assert data_of(out.read_text(encoding="utf-8"))[0]["runs"] == 100


def test_a_study_without_runs_is_shown_as_such(tmp_path):
    empty = Invented(CONFIG, tmp_path, missing=30)
    data = study_data("empty", "c", {"empty": empty.collect()})
    assert (data["runs"], data["missing"]) == (0, 30)
    assert all(variant["curve"] is None for variant in data["variants"])


def test_a_folder_without_studies_is_named(tmp_path, capsys):
    assert cli.main(["ablate", "--report", f"--records={tmp_path}"]) == cli.USER_ERROR_EXIT_CODE
    assert str(tmp_path) in capsys.readouterr().err


def test_loss_curves_are_those_of_the_first_objective(tmp_path):
    electra = Variant("RTD", "bert_a", {"objective.name": "replaced_token"})
    config = replace(CONFIG, variants=(CONFIG.variants[0], electra))
    write_archive(Invented(config, tmp_path), "c", tmp_path / "two")
    data = study_data("two", "c", {"two": ArchivedRecords(tmp_path / "two").collect()})
    assert [variant["curve"] is None for variant in data["variants"]] == [False, True]
    assert "loss curves of masked_lm, not of replaced_token" in data["about"]

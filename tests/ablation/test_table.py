"""The table says what the records say."""

import csv
import io
import math
from dataclasses import replace

from tests.ablation.studies import record_of, small_study
from tupe_jax.ablation.collect import Collected
from tupe_jax.ablation.plan import RunKey
from tupe_jax.ablation.table import csv_table, markdown

CONFIG = small_study()


def record(variant, seed, rate=1e-3, **changes):
    return record_of(CONFIG, RunKey(variant, seed, rate), **changes)


COLLECTED = Collected(
    CONFIG,
    runs={
        "bert_a": {0: record("bert_a", 0, loss=3.0), 1: record("bert_a", 1, loss=4.0)},
        "tupe_a": {},
    },
    tuning={
        "bert_a": {1e-3: record("bert_a", 0, loss=3.0), 1e-2: record("bert_a", 0, 1e-2, loss=5.0)},
        "tupe_a": {1e-3: record("tupe_a", 0, diverged=True)},
    },
    missing=(),
)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_line_has_mean_and_spread_over_seeds():
    header, _, bert, tupe, *_ = map(cells, markdown(COLLECTED).split("\n"))
    line = dict(zip(header, bert, strict=True))
    assert line["validation loss, nats"] == "3.500 ± 0.707"
    assert line["builtin_sst, %"] == "75.0 ± 0.0"
    assert line["Random, points"] == "-25.0 ± 0.0"
    assert line["minimal pairs, %"] == "62.5 ± 0.0"
    assert (line["locality"], line["mirror symmetry"]) == ("0.250 ± 0.000", "0.750 ± 0.000")
    assert (line["seeds"], line["learning rate"], line["parameters"]) == ("2", "0.001", "1,000")
    assert tupe[0] == "tupe_a"
    assert set(tupe[1:3] + tupe[4:]) == {"-"}


def test_a_seed_that_diverged_leaves_no_mean():
    one, other = record("bert_a", 0), record("bert_a", 1, diverged=True)
    collected = replace(COLLECTED, runs={"bert_a": {0: one, 1: other}, "tupe_a": {}})
    header, _, bert, *_ = map(cells, markdown(collected).split("\n"))
    assert dict(zip(header, bert, strict=True))["validation loss, nats"] == "inf"


def test_the_tuning_is_shown_with_what_was_chosen_and_whether_at_the_edge():
    table = markdown(COLLECTED)
    assert "| bert_a | **3.000** | 5.000 |" in table
    assert "| tupe_a | inf | - |" in table
    assert "Best at the edge of what was tried: bert_a (0.001)." in table


def test_the_csv_has_every_number_of_every_run():
    first, second = csv.DictReader(io.StringIO(csv_table(COLLECTED)))
    assert (first["variant"], first["seed"], second["seed"]) == ("bert_a", "0", "1")
    assert (first["validation_loss"], second["validation_loss"]) == ("3.0", "4.0")
    assert first["builtin_sst_accuracy_last"] == "0.5"
    assert first["Random_delta"] == "-0.25"
    assert math.isclose(float(first["symmetry"]), 0.5)

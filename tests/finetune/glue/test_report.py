"""The table has the paper's rows, ours below them, and lists unfinished trials."""

import csv
import json

import pytest

from tests.finetune.results import result
from tupe_jax.data.labelled.glue import TASKS
from tupe_jax.finetune.glue.paper_results import COLA, PAPER_COLUMNS, PAPER_ROWS
from tupe_jax.finetune.glue.report import PUBLISHED_ROWS, as_json, csv_table, make_report, markdown
from tupe_jax.finetune.tasks import metrics_of


def report(tasks, planned=2):
    """Two seeds of one rate for every task; scores are 0.5 and 0.7."""
    results = {}
    for task, finished in tasks.items():
        splits = [split for split in TASKS[task].splits if split.startswith("dev")]
        metric = metrics_of(task)[0]
        results[task] = [
            result(3e-5, seed, dict.fromkeys(splits, value), metric)
            for seed, value in [(0, 0.5), (1, 0.7)][:finished]
        ]
    return make_report("runs/mine", 300, results, planned)


def cells(table, model):
    """The cells of a row by column."""
    header, _, *rows = [line for line in table.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)]
    assert len({len(row) for row in split}) == 1
    return dict(zip(split[0], next(row for row in split if row[0] == model), strict=True))


ALL = {column.task: 2 for column in PAPER_COLUMNS}


def test_the_published_averages_are_those_of_the_published_numbers():
    assert len(PAPER_ROWS) == 12
    for paper, row in zip(PAPER_ROWS, PUBLISHED_ROWS, strict=True):
        assert row.average("Avg").value == pytest.approx(paper.average, abs=0.0051)


def test_the_whole_table():
    table = markdown(report(ALL))
    assert table.splitlines()[0] == (
        "| model | steps | MNLI-m/mm | QNLI | QQP | SST | CoLA | MRPC | RTE | STS | Avg "
        "| Avg without CoLA |"
    )
    tupe_r = cells(table, "TUPE-R")
    assert (tupe_r["MNLI-m/mm"], tupe_r["CoLA"], tupe_r["Avg"]) == ("86.21/86.19", "63.56", "85.04")
    assert tupe_r["Avg without CoLA"] == "87.73"
    ours = cells(table, "runs/mine")
    assert (ours["steps"], ours["MNLI-m/mm"], ours["STS"]) == ("300", "60.00/60.00", "60.00")
    assert (ours["Avg"], ours["Avg without CoLA"]) == ("60.00", "60.00")
    assert cells(table, "its seeds, lowest to highest")["RTE"] == "50.00 to 70.00"
    assert cells(table, "its learning rate")["RTE"] == "3e-05"
    assert cells(table, "runs/mine, last evaluation")["RTE"] == "50.00"
    assert "Unfinished" not in table


def test_what_is_missing_is_marked():
    table = markdown(report({"mnli": 2, "cola": 1, "rte": 0}))
    ours = cells(table, "runs/mine")
    assert (ours["MNLI-m/mm"], ours["CoLA"], ours["RTE"]) == ("60.00/60.00", "50.00*", "-")
    assert ours["Avg"] == "56.67 (3 of 9)*"
    assert ours["Avg without CoLA"] == "60.00 (2 of 8)"
    assert table.endswith("* Unfinished trials: cola 1 of 2, rte 2 of 2.")
    assert cells(table, "TUPE-R")["CoLA"] == "63.56"


def test_nothing_finished_is_a_table_too():
    ours = cells(markdown(report({"cola": 0})), "runs/mine")
    assert (ours["CoLA"], ours["Avg"], ours["Avg without CoLA"]) == ("-", "-", "-")


def test_tasks_that_the_paper_does_not_have_stay_out_of_the_averages():
    table = markdown(report({"cola": 2, "wnli": 1}))
    ours = cells(table, "runs/mine")
    assert (ours["wnli"], ours["Avg"]) == ("50.00*", "60.00 (1 of 9)")
    assert cells(table, "TUPE-R")["wnli"] == "-"
    alone = markdown(report({"wnli": 2}))
    assert alone.splitlines()[0] == "| model | steps | wnli |"
    assert "TUPE-R" not in alone


def test_csv():
    rows = list(csv.DictReader(csv_table(report({"mnli": 2, "cola": 1})).splitlines()))
    assert [row["model"] for row in rows] == [
        *(row.model for row in PAPER_ROWS),
        "runs/mine",
        "runs/mine, last evaluation",
    ]
    ours = rows[-2]
    assert (ours["MNLI-mm"], ours[COLA.title], ours["RTE"]) == ("60.00", "50.00", "")
    assert (ours["Avg"], ours["numbers in Avg"]) == ("56.67", "3")
    assert rows[0]["numbers in Avg"] == "9"


def test_json_has_every_score():
    values = json.loads(json.dumps(as_json(report({"cola": 1, "rte": 0}))))
    cola = values["best"]["cola"]
    assert (cola["metric"], cola["trials_finished"], cola["trials_planned"]) == ("matthews", 1, 2)
    assert cola["splits"]["dev"][0]["by_seed"] == {"0": 0.5}
    assert values["last"]["cola"]["splits"]["dev"][0]["median"] == pytest.approx(0.4)
    assert values["best"]["rte"]["reported_learning_rate"] is None
